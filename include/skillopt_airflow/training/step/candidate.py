"""A candidate from edits to verdict, for steps, slow updates and meta reflections."""

import logging
import time
from collections.abc import Sequence

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.run.early_rejection import evaluation_order, may_end_early
from skillopt_airflow.core.run.history import MomentHistory
from skillopt_airflow.core.run.moment_outcome import GateInput, pass_gate
from skillopt_airflow.core.run.state import ReflectedItems, RunState
from skillopt_airflow.core.run.timeline import Moment, leaves_memory
from skillopt_airflow.core.values.edits import EditApplyReport
from skillopt_airflow.core.values.provenance import LinesOfSkill, SkillVersion, revised
from skillopt_airflow.core.values.skill import length_warning
from skillopt_airflow.core.values.text import visible
from skillopt_airflow.core.values.types import JsonObject, Patch, Split
from skillopt_airflow.training.rollouts.evaluation import samples_of
from skillopt_airflow.training.rollouts.rollout_plan import Chunk, chunks_of, cut, ids, parts_of, store_plan
from skillopt_airflow.training.run import timing
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.spending import stop_reason_at

log = logging.getLogger(__name__)


def propose(run: TrainingRun, moment: Moment, patch: Patch) -> list[JsonObject]:
    """Make the moment's candidate; return the chunks that measure it, none if it equals the current skill."""
    keys, store = run.keys.moment(moment), run.store
    before = run.state_before(moment)
    current = _version(run, before.current.version)
    candidate, report = revised(current, patch.edits, moment.name)
    store.put_model(keys.applied_patch, patch)
    store.put_model(keys.edit_apply_report, report)
    store.put_model(keys.line_origins, candidate.lines)
    store.put_text(keys.candidate_skill, candidate.skill.text)
    for row in report.rows:
        log.info("%s: %s %s %s", row.status, row.edit.op, visible(row.edit.content[:80], kept=""), row.reason)
    chunks = [] if candidate.skill == current.skill else _evaluation_chunks(run, moment, before)
    return store_plan(run, moment, "evaluate", chunks)


def _evaluation_chunks(run: TrainingRun, moment: Moment, before: RunState) -> list[Chunk]:
    """Return the chunks that measure the moment's candidate on the selection split, per sample.

    If the evaluation may end early, items with the most room for improvement come first.
    """
    config, items, samples = run.config, ids(run.item_refs(Split.VAL)), range(run.config.evaluation.samples)
    skill = run.keys.moment(moment).candidate_skill
    if not may_end_early(moment, config):
        return chunks_of(config, "evaluate", [skill], Split.VAL, items, samples)
    order = evaluation_order(items, before.current.evaluation, config.evaluation, run.states.record(before))
    return [
        Chunk(stage="evaluate", skill=skill, split=Split.VAL, sample=sample, item_ids=tuple(part), contested=True)
        for part in cut_contested(order, config, len(samples))
        for sample in samples
    ]


def cut_contested(order: Sequence[str], config: TrainConfig, times: int) -> list[list[str]]:
    """Split an evaluation that may end early into the same number of parts as any other.

    Items are dealt round-robin to the parts that run concurrently, so that containers advance together in order.
    """
    parts = cut(order, parts_of(len(order), config, times))
    together = max(1, config.sandbox.max_containers // times)
    found: list[list[str]] = []
    for start in range(0, len(parts), together):
        group = parts[start : start + together]
        block = [value for part in group for value in part]
        found += [block[place :: len(group)] for place in range(len(group))]
    return found


def gate(run: TrainingRun, moment: Moment) -> RunState:
    """Decide on the moment's candidate; the state, written last, commits the moment."""
    keys, store, config = run.keys.moment(moment), run.store, run.config
    started, is_step, takes_notes = time.time(), moment.kind == "step", config.optimizer.use_skill_aware_reflection
    before = run.state_before(moment)
    current, skill = _version(run, before.current.version), run.document(keys.candidate_skill)
    notes = store.find_model(keys.notes, Patch) if takes_notes else None
    given = GateInput(
        moment=moment,
        config=config,
        before=before,
        record=run.states.record(before),
        current=current,
        best=run.skill(before.best.version),
        candidate=SkillVersion(skill, store.get_model(keys.line_origins, LinesOfSkill)),
        items=run.item_refs(Split.VAL),
        rollouts={} if skill == current.skill else samples_of(run, Split.VAL, skill),
        applied=store.get_model(keys.applied_patch, Patch),
        report=store.get_model(keys.edit_apply_report, EditApplyReport),
        ranked=store.get_model(keys.ranked_edits, Patch) if is_step else None,
        reflected=store.get_model(keys.reflected_items, ReflectedItems) if is_step else None,
        notes=() if notes is None else notes.edits,
        memory=store.get_text(run.keys.meta_skill(moment.epoch)) if leaves_memory(moment, config) else None,
        stop=stop_reason_at(run, moment) or _why_unanswered(run, moment),
    )
    row, state, versions, notes_report = pass_gate(given)
    for number, version in versions.items():
        store.put_text(run.keys.skill(number), version.skill.text)
        store.put_model(run.keys.line_origins(number), version.lines)
        if long := length_warning(version.skill):
            log.warning("version %d: %s", number, long)
    if notes_report is not None:
        store.put_model(keys.notes_apply_report, notes_report)
    elif takes_notes:
        # An earlier attempt may have added notes.
        store.delete(keys.notes_apply_report)
    store.put_model(keys.gate, row.decision)
    log.info("%s: %s, %s", moment.name, row.action, row.decision.reason)
    if state.stopped:
        log.warning("the run stops here: %s", state.stopped)
    timing.save(store, keys, timing.StageTiming(stage="gate", started=started, ended=time.time()))
    # The row includes this task's time, and is stored before the state that commits the moment.
    timings, previous = timing.load(store, keys), run.keys.moment(run.previous(moment)).history_row
    last = store.find_model(previous, MomentHistory)
    seconds = timing.step_seconds(timings, None if last is None else last.ended)
    ended = max(one.ended for one in timings)
    store.put_model(keys.history_row, row.model_copy(update={"ended": ended, "seconds": seconds}))
    run.commit(moment, state)
    return state


def _version(run: TrainingRun, number: int) -> SkillVersion:
    return SkillVersion(run.skill(number), run.store.get_model(run.keys.line_origins(number), LinesOfSkill))


def _why_unanswered(run: TrainingRun, moment: Moment) -> str:
    """Return why the run stops after this step: two steps without a usable reflection; or ""."""
    lost: list[str] = []
    for step in [moment, *(one for one in run.timeline if one.kind == "step" and one.step == moment.step - 1)]:
        keys = run.keys.moment(step)
        if step.kind != "step" or run.store.get_model(keys.merged_patch, Patch).edits:
            return ""
        patches = [run.store.get_model(key, Patch) for key in run.store.list_keys(keys.reflections)]
        if not patches or any(patch.notes or not patch.fallback for patch in patches):
            return ""
        lost.append(patches[0].fallback)
        if step == moment:
            log.warning("%s: no reflection had a usable answer, so there are no edits: %s", moment.name, lost[0])
    if len(lost) == 1:
        return ""
    return f"no reflection on the last two steps had a usable answer from the optimizer model: {lost[0]}"
