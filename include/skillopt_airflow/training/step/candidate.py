"""A candidate from edits to verdict: the same for a step, a slow update and a meta reflection."""

import logging

from skillopt_airflow.core.gate.measured_score import SplitScore
from skillopt_airflow.core.run.history import MomentHistory
from skillopt_airflow.core.run.moment_gate import GateInput, GateOutcome, SkillVersion, pass_gate
from skillopt_airflow.core.run.state import ReflectedItems, RunState
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.edits import EditApplyReport, apply_edits
from skillopt_airflow.core.values.provenance import LinesOfSkill, trace
from skillopt_airflow.core.values.skill import length_warning
from skillopt_airflow.core.values.text import visible
from skillopt_airflow.core.values.types import JsonObject, Patch, Split
from skillopt_airflow.optimizer.answers import split_fallbacks
from skillopt_airflow.report.view import diff_of
from skillopt_airflow.training.rollouts.evaluation import draws_of, evaluation_chunks
from skillopt_airflow.training.rollouts.rollout_plan import store_plan
from skillopt_airflow.training.run import timing
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.spending import why_stop
from skillopt_airflow.training.step.reflection import why_unanswered

log = logging.getLogger(__name__)


def remembers(run: TrainingRun, moment: Moment) -> bool:
    """Return whether the moment leaves a memory to the optimizer; after the last epoch nobody would read it."""
    wanted = run.config.optimizer.use_meta_skill and moment.epoch < run.config.train.num_epochs
    return wanted and moment.kind == "slow_update"


def propose(run: TrainingRun, moment: Moment, patch: Patch) -> list[JsonObject]:
    """Make the moment's candidate; return the chunks that measure it, none if it is the current skill itself."""
    keys, store = run.keys.moment(moment), run.store
    skill, origins = _version(run, run.state_before(moment).current.version)
    candidate, report = apply_edits(skill, patch.edits)
    store.put_model(keys.applied_patch, patch)
    store.put_model(keys.edit_apply_report, report)
    store.put_model(keys.line_origins, LinesOfSkill(lines=trace(skill, origins.lines, report, moment.name)))
    store.put_text(keys.candidate_skill, candidate.text)
    for row in report.rows:
        log.info("%s: %s %s %s", row.status, row.edit.op, visible(row.edit.content[:80], kept=""), row.reason)
    chunks = [] if candidate == skill else evaluation_chunks(run, moment, keys.candidate_skill)
    return store_plan(run, moment, "evaluate", chunks)


def gate(run: TrainingRun, moment: Moment) -> RunState:
    """Decide on the moment's candidate; the state, written last, commits the moment."""
    with timing.timed(run.store, run.keys.moment(moment), "gate"):
        given = _load(run, moment)
        outcome = pass_gate(given)
        _store(run, moment, outcome)
    store_row(run, given, outcome)
    run.commit(moment, outcome.state)
    return outcome.state


def _load(run: TrainingRun, moment: Moment) -> GateInput:
    keys, store, config = run.keys.moment(moment), run.store, run.config
    before, is_step = run.state_before(moment), moment.kind == "step"
    current = _version(run, before.current.version)
    candidate = SkillVersion(run.document(keys.candidate_skill), store.get_model(keys.line_origins, LinesOfSkill))
    notes = store.find_model(keys.notes, Patch) if config.optimizer.use_skill_aware_reflection else None
    return GateInput(
        moment=moment,
        config=config,
        before=before,
        record=run.states.record(before),
        current=current,
        best=run.skill(before.best.version),
        candidate=candidate,
        items=run.item_refs(Split.VAL),
        rollouts={} if candidate.skill == current.skill else draws_of(run, Split.VAL, candidate.skill),
        report=store.get_model(keys.edit_apply_report, EditApplyReport),
        ranked=store.get_model(keys.ranked_edits, Patch) if is_step else None,
        reflected=store.get_model(keys.reflected_items, ReflectedItems) if is_step else None,
        notes=() if notes is None else notes.edits,
        memory=store.get_text(run.keys.meta_skill(moment.epoch)) if remembers(run, moment) else None,
        stop=why_stop(run, moment) or why_unanswered(run, moment),
    )


def _store(run: TrainingRun, moment: Moment, outcome: GateOutcome) -> None:
    """Store everything but the state."""
    keys, store = run.keys.moment(moment), run.store
    for number, (skill, lines) in outcome.versions.items():
        store.put_text(run.keys.skill(number), skill.text)
        store.put_model(run.keys.line_origins(number), lines)
        if long := length_warning(skill):
            log.warning("version %d: %s", number, long)
    if outcome.notes_report is not None:
        store.put_model(keys.notes_apply_report, outcome.notes_report)
    elif run.config.optimizer.use_skill_aware_reflection:
        # The moment may have added notes before it was done again.
        store.delete(keys.notes_apply_report)
    store.put_model(keys.gate, outcome.decision)
    log.info("%s: %s, %s", moment.name, outcome.decision.action, outcome.decision.reason)
    if outcome.state.stopped:
        log.warning("the run stops here: %s", outcome.state.stopped)


def _version(run: TrainingRun, number: int) -> SkillVersion:
    return SkillVersion(run.skill(number), run.store.get_model(run.keys.line_origins(number), LinesOfSkill))


def store_row(run: TrainingRun, given: GateInput, outcome: GateOutcome) -> None:
    """Store the moment's row, before the state that commits the moment and after the timing of its last task."""
    moment, rules, decision = given.moment, given.config.evaluation, outcome.decision
    keys, skill, candidate = run.keys.moment(moment), given.current.skill, given.candidate.skill
    is_measured = decision.bound is None and candidate != skill and bool(outcome.evaluation.scores)
    notes = () if outcome.notes_report is None else outcome.notes_report.rows
    patch, after = run.store.get_model(keys.applied_patch, Patch), outcome.state
    current, timings = after.current.evaluation, timing.load(run.store, keys)
    row = MomentHistory(
        name=moment.name,
        kind=moment.kind,
        step=moment.step,
        epoch=moment.epoch,
        decision=decision,
        candidate=SplitScore.of(outcome.evaluation, rules, version=given.before.newest + 1) if is_measured else None,
        score_after=current.gate_mean(rules) if current.scores else None,
        best_score=after.best.evaluation.gate_mean(rules),
        skill_version=after.current.version,
        edits=(*given.report.rows, *notes),
        diff=diff_of(skill.text, candidate.text),
        failure_patterns=patch.failure_patterns,
        fallbacks=split_fallbacks(patch.fallback),
        cancelled=0 if decision.bound is None else _cancelled(given),
        ended=max(one.ended for one in timings),
        seconds=timing.step_seconds(timings, _begun(run, moment, timings)),
    )
    run.store.put_model(keys.history_row, row)


def _begun(run: TrainingRun, moment: Moment, timings: list[timing.StageTiming]) -> float:
    """Return when the moment before was over; the first one begins with its own first task."""
    previous = run.timeline[run.timeline.index(moment) - 1]
    if previous.kind == "seed":
        return min(one.started for one in timings)
    return run.store.get_model(run.keys.moment(previous).history_row, MomentHistory).ended


def _cancelled(given: GateInput) -> int:
    whole = len(given.items) * given.config.evaluation.draws
    return whole - sum(len(draws) for draws in given.rollouts.values())
