"""A candidate from edits to verdict: the same for a step, a slow update and a meta reflection."""

import logging
from typing import TYPE_CHECKING, Any

from skillopt_airflow.core.buffer import ReflectedItems, entry_of
from skillopt_airflow.core.contenders import rules_among
from skillopt_airflow.core.density import density, length_warning
from skillopt_airflow.core.early_rejection import reject_early
from skillopt_airflow.core.edits import EditApplyReport, EditReport, apply_edits
from skillopt_airflow.core.gate import EQUAL, GateDecision, decide, reject, reject_screened
from skillopt_airflow.core.hidden_text import visible
from skillopt_airflow.core.item_scores import Evaluation, covers
from skillopt_airflow.core.paired import PairedTable, interval
from skillopt_airflow.core.provenance import LinesOfSkill, trace
from skillopt_airflow.core.skill import SkillDocument
from skillopt_airflow.core.state import Measured, RunState, advance, remember
from skillopt_airflow.core.timeline import Moment, writes_guidance
from skillopt_airflow.core.training_groups import EvaluationGroup
from skillopt_airflow.core.types import Edit, Patch, Split
from skillopt_airflow.training import timing
from skillopt_airflow.training.batch_screen import screening
from skillopt_airflow.training.choice import settle, to_measure
from skillopt_airflow.training.evaluation import (
    by_type,
    cut_or_measured,
    evaluation_chunks,
)
from skillopt_airflow.training.lapse_notes import with_notes
from skillopt_airflow.training.moment_row import store_row
from skillopt_airflow.training.reflection import why_unanswered
from skillopt_airflow.training.rollout_plan import Chunk
from skillopt_airflow.training.run import TrainingRun
from skillopt_airflow.training.spending import why_stop

if TYPE_CHECKING:
    from skillopt_airflow.store.keys import MomentKeys

log = logging.getLogger(__name__)


def remembers(run: TrainingRun, moment: Moment) -> bool:
    """Return whether the moment leaves a memory to the optimizer; after the last epoch nobody would read it."""
    wanted = run.config.optimizer.use_meta_skill and moment.epoch < run.config.train.num_epochs
    return wanted and moment.kind == "slow_update"


def propose(run: TrainingRun, moment: Moment, patch: Patch) -> list[Chunk]:
    """Make the moment's candidate; return what it takes to measure it, nothing if it is the current skill itself."""
    store_candidate(run, moment, run.keys.moment(moment), patch)
    return evaluation_chunks(run, moment, [proposal.keys.candidate_skill for proposal in to_measure(run, moment)])


def store_candidate(run: TrainingRun, moment: Moment, keys: "MomentKeys", patch: Patch) -> None:
    """Apply the patch, and store the candidate with its report and its lines' origins."""
    version = run.state_before(moment).current.version
    skill = run.skill(version)
    candidate, report = apply_edits(skill, patch.edits)
    origins = run.store.get_model(run.keys.line_origins(version), LinesOfSkill)
    lines = LinesOfSkill(lines=trace(skill, origins.lines, report, moment.name))
    run.store.put_model(keys.applied_patch, patch)
    run.store.put_model(keys.edit_apply_report, report)
    run.store.put_model(keys.line_origins, lines)
    run.store.put_text(keys.candidate_skill, candidate.text)
    for row in report.rows:
        log.info("%s: %s %s %s", row.status, row.edit.op, visible(row.edit.content[:80], kept=""), row.reason)


def tried_edits(run: TrainingRun, keys: "MomentKeys") -> tuple[Edit, ...]:
    """Return what a candidate tried, as the optimizer proposed it: the edits that reached it, and its new notes."""
    ranked = run.store.get_model(keys.ranked_edits, Patch)
    report = run.store.get_model(keys.edit_apply_report, EditApplyReport)
    made = [row for row in report.rows if row.status != "skipped"]
    written_anew, reached = any(row.edit.op == "rewrite" for row in made), [row.edit for row in made]
    edits = (edit for edit in ranked.edits if written_anew or edit in reached)
    return (*edits, *(_new_lines(row) for row in made if row.edit.op == "region"))


def _new_lines(row: EditReport) -> Edit:
    """Return an edit of a region with the lines that it adds alone."""
    before = row.removed.split("\n")
    added = [line for line in row.inserted.split("\n") if line not in before]
    return row.edit.model_copy(update={"content": "\n".join(added)})


def compared(decision: GateDecision) -> PairedTable:
    """Return candidate and current skill on the same items: those that both have a score for.

    Of a candidate rejected early they are those that ran, of one that was screened out those of the step's batch.
    """
    return decision.screened_out or decision.against_current


def gate(run: TrainingRun, moment: Moment) -> RunState:
    """Decide on the moment's candidate, the best of several; the state, written last, commits the moment."""
    keys, store = run.keys.moment(moment), run.store
    with timing.timed(store, keys, "gate"):
        before = run.state_before(moment)
        contenders, others = settle(run, moment)
        candidate = run.document(keys.candidate_skill)
        rules = rules_among(run.config.evaluation, contenders)
        evaluation, decision = _screen_and_judge(run, moment, before, candidate, rules)
        memory_only = moment.kind == "slow_update" and not writes_guidance(moment, run.config.optimizer)
        found = {} if decision.equal else _findings(run, candidate, evaluation)
        found |= {"contenders": contenders, "memory_only": memory_only}
        decision = decision.model_copy(update=found)
        number = before.newest + 1
        state = advance(
            before, moment, Measured(version=number, sha256=candidate.sha256, evaluation=evaluation), decision
        )
        if candidate.sha256 != before.current.sha256:
            record = run.states.record(before)
            for one in (evaluation, *others):
                record = record.with_scores(one, rules)
            state = state.model_copy(update={"record": record})
        if decision.action.accepted:
            store.put_text(run.keys.skill(number), candidate.text)
            store.put_bytes(run.keys.line_origins(number), store.get_bytes(keys.line_origins))
            if long := length_warning(candidate):
                log.warning("version %d: %s", number, long)
        state = _remembering(run, moment, with_notes(run, moment, state), decision)
        state = state.model_copy(update={"stopped": why_stop(run, moment) or why_unanswered(run, moment)})
        leave_behind(run, moment, state)
        store.put_model(keys.gate, decision)
        if run.is_newest(moment):
            # Not only an accepted candidate: a gate that is done again may take back the best skill of before.
            store.put_text(run.keys.best_skill, run.skill(state.best.version).text)
        log.info("%s: %s, %s", moment.name, decision.action, decision.reason)
        if state.stopped:
            log.warning("the run stops here: %s", state.stopped)
    store_row(run, moment, before, state, evaluation, decision)
    run.commit(moment, state, newest=run.is_newest(moment))
    return state


def _findings(run: TrainingRun, candidate: SkillDocument, evaluation: Evaluation) -> dict[str, Any]:
    """Return what the verdict tells besides: mean, interval, score per tokens and by type; nothing of a part."""
    rules = run.config.evaluation
    if evaluation.cancelled or not evaluation.scores:
        return {}
    mean = evaluation.gate_mean(rules)
    if not covers(evaluation, rules):
        return {"candidate_mean": mean}
    return {
        "candidate_mean": mean,
        "density": density(mean, candidate),
        "interval": interval(evaluation, rules),
        "by_type": by_type(run, Split.VAL, evaluation),
    }


def leave_behind(run: TrainingRun, moment: Moment, state: RunState) -> None:
    """Take back the states of later moments, and what their reflections were about, if this one ends otherwise."""
    from skillopt_airflow.store.run_states import same

    # The next moment may have begun without a state of its own.
    if not run.committed(moment) or same(run.state(moment), state):
        return
    later = run.timeline[run.timeline.index(moment) + 1 :]
    for keys in map(run.keys.moment, reversed(later)):
        run.store.delete(keys.reflected_items)
        run.store.delete(keys.state)
    log.warning(
        "%s has another outcome than before, so what followed from it does not count: clear the training's task of "
        "this part, with all that comes after it",
        moment.name,
    )


def _screen_and_judge(
    run: TrainingRun, moment: Moment, before: RunState, candidate: SkillDocument, rules: EvaluationGroup
) -> tuple[Evaluation, GateDecision]:
    """Return the candidate's evaluation and the verdict on it; nothing is evaluated of one that was screened out."""
    screen = screening(run, moment, candidate)
    if screen is None:
        return _judge(run, moment, before, candidate, rules)
    if not screen.passed:
        evaluation = Evaluation(scores={}, cancelled=len(run.item_refs(Split.VAL)))
        current, best = before.current.evaluation, before.best.evaluation
        return evaluation, reject_screened(screen, evaluation, current, best, rules)
    evaluation, decision = _judge(run, moment, before, candidate, rules)
    return evaluation, decision.model_copy(update={"screen": screen})


def _judge(
    run: TrainingRun, moment: Moment, before: RunState, candidate: SkillDocument, rules: EvaluationGroup
) -> tuple[Evaluation, GateDecision]:
    """Return the candidate's evaluation, cut short where its loss is certain, and the gate's verdict on it."""
    current, best = before.current, before.best
    if candidate.sha256 == current.sha256:
        reason = f"{EQUAL}, so there was nothing to measure"
        return current.evaluation, reject(current.evaluation, current.evaluation, best.evaluation, rules, reason)
    evaluation, bound = cut_or_measured(run, moment, before, candidate)
    if bound is not None:
        return evaluation, reject_early(evaluation, bound, current.evaluation, best.evaluation, rules)
    # What could not be measured is not taken by force either: later candidates would have nothing to be compared with.
    forced = _is_forced(run, moment) and covers(evaluation, rules)
    skills = (candidate, run.skill(best.version)) if rules.use_semantic_density else None
    return evaluation, decide(evaluation, current.evaluation, best.evaluation, rules, force=forced, skills=skills)


def _is_forced(run: TrainingRun, moment: Moment) -> bool:
    """Return whether the candidate is taken whatever it scores."""
    return moment.kind == "slow_update" and not run.config.optimizer.slow_update_gate


def _remembering(run: TrainingRun, moment: Moment, state: RunState, decision: GateDecision) -> RunState:
    """Return the state with what later moments are to know of this one: a step's trace, an epoch's memory."""
    keys = run.keys.moment(moment)
    if remembers(run, moment):
        return state.model_copy(update={"meta_skill": run.store.get_text(run.keys.meta_skill(moment.epoch))})
    if moment.kind != "step":
        return state
    entry = entry_of(
        moment.step,
        run.store.get_model(keys.reflected_items, ReflectedItems),
        run.store.get_model(keys.ranked_edits, Patch).failure_patterns,
        decision.action,
        tried_edits(run, keys),
        compared(decision),
        _others(run, moment, decision),
    )
    return remember(state, entry)


def _others(run: TrainingRun, moment: Moment, decision: GateDecision) -> list[tuple[tuple[Edit, ...], bool]]:
    """Return the edits of each candidate that was measured and not chosen, and whether it beat the current skill."""
    keys = run.keys.moment(moment)
    others = [one for one in decision.contenders if one.measured and not one.chosen]
    return [(tried_edits(run, keys.proposal(one.proposal)), one.better) for one in others]
