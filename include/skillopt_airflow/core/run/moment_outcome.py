"""The gate of a moment: from a candidate's rollouts to the verdict and the moment's final state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.gate.decision import EQUAL, Action, GateDecision, decide
from skillopt_airflow.core.gate.item_scores import Evaluation, covers, evaluation_of
from skillopt_airflow.core.gate.measured_score import SplitScore, scores_by_type
from skillopt_airflow.core.gate.paired import PairedTable, interval
from skillopt_airflow.core.run.early_rejection import RunningEvaluation, may_end_early
from skillopt_airflow.core.run.history import MomentHistory
from skillopt_airflow.core.run.state import BufferEntry, Measured, ReflectedItems, RunState, TrackRecord, tried_edits
from skillopt_airflow.core.run.timeline import Moment, writes_guidance
from skillopt_airflow.core.values.edits import EditApplyReport, EditReport
from skillopt_airflow.core.values.provenance import SkillVersion, revised
from skillopt_airflow.core.values.skill import SkillDocument, density, diff_of
from skillopt_airflow.core.values.types import Edit, ItemRef, Patch, RolloutResult


@dataclass(frozen=True)
class GateInput:
    """The input of the decision on a moment's candidate."""

    moment: Moment
    config: TrainConfig
    before: RunState
    record: TrackRecord
    """The record of `before`, which has only its name."""
    current: SkillVersion
    best: SkillDocument
    candidate: SkillVersion
    items: Sequence[ItemRef]
    """The selection split."""
    rollouts: Mapping[str, Sequence[RolloutResult]]
    """The candidate's rollouts by item id, one per sample; unused if the candidate equals the current skill."""
    applied: Patch
    """The edits that were to make the candidate."""
    report: EditApplyReport
    ranked: Patch | None
    """The selected edits of a step."""
    reflected: ReflectedItems | None
    notes: Sequence[Edit]
    """Edits that are applied whatever the verdict."""
    memory: str | None
    """The optimizer's new memory; None if the moment leaves none."""
    stop: str
    """The reason why the run stops after this moment; empty if it continues."""


class GateOutcome(NamedTuple):
    """The verdict and its effects."""

    row: MomentHistory
    """Without the seconds, which are known at the end."""
    state: RunState
    versions: Mapping[int, SkillVersion]
    """The versions that the moment adds, by number."""
    notes_report: EditApplyReport | None
    """The report on notes, which bypass the gate; None if none was added."""


def pass_gate(given: GateInput) -> GateOutcome:
    """Decide on the candidate, and on the state that the moment ends with."""
    before, moment, rules = given.before, given.moment, given.config.evaluation
    evaluation, decision = _judged(given)
    state: dict[str, Any] = {"moment": moment.name, "step": moment.step, "stopped": given.stop}
    number, version, versions = before.newest + 1, given.current, {}
    if decision.action.accepted:
        version = versions[number] = given.candidate
        measured = Measured(version=number, sha256=version.skill.sha256, evaluation=evaluation)
        state |= {"current": measured, "newest": number}
        if decision.action is Action.ACCEPT_NEW_BEST:
            state["best"] = measured
    if given.candidate.skill != given.current.skill:
        state["record"] = given.record.with_scores(evaluation, rules)
    if given.memory is not None:
        state["meta_skill"] = given.memory
    if given.ranked is not None and given.reflected is not None:
        compared = decision.against_current
        entry = entry_of(moment.step, given.reflected, given.ranked, given.report, decision.action, compared)
        state["buffer"] = before.buffer.model_copy(update={"entries": (*before.buffer.entries, entry)})
    after, report = before.model_copy(update=state), None
    # Notes enter the current skill whatever the verdict, as one more version with the scores of the last. The best
    # skill has no notes that were not measured with it.
    noted, added = revised(version, given.notes, moment.name, first=len(given.report.rows))
    if noted.skill != version.skill:
        number, scores, report = after.newest + 1, after.current.evaluation, added
        current = Measured(version=number, sha256=noted.skill.sha256, evaluation=scores, has_new_notes=True)
        after, versions[number] = after.model_copy(update={"current": current, "newest": number}), noted
    row = _row(given, evaluation, decision, after, () if report is None else report.rows)
    return GateOutcome(row, after, versions, report)


def _judged(given: GateInput) -> tuple[Evaluation, GateDecision]:
    """Return the candidate's evaluation, cut short if it was rejected early, and the verdict."""
    moment, config, rules = given.moment, given.config, given.config.evaluation
    current, best = given.before.current.evaluation, given.before.best.evaluation
    if given.candidate.skill == given.current.skill:
        decision = decide(current, current, best, rules, certain=f"{EQUAL}, so there was nothing to measure")
        memory_only = moment.kind == "slow_update" and not writes_guidance(moment, config.optimizer)
        return current, decision.model_copy(update={"memory_only": memory_only})
    if may_end_early(moment, config):
        lost = RunningEvaluation.of(given.items, given.rollouts, current, rules, given.record).lost()
        if lost is not None:
            evaluation, bound = lost
            reason = (
                f"rejected early: {evaluation.size - evaluation.cancelled} of {evaluation.size} items show that its "
                f"score is <= {bound:.4f}, not better than current {current.gate_mean(rules):.4f}"
            )
            decision = decide(evaluation, current, best, rules, certain=reason)
            return evaluation, decision.model_copy(update={"bound": bound})
    evaluation = evaluation_of(given.items, given.rollouts, rules.samples)
    covered = covers(evaluation, rules)
    # Even force doesn't accept an unmeasured candidate, because later candidates couldn't be compared with it.
    force = covered and moment.kind == "slow_update" and not config.optimizer.slow_update_gate
    skills = (given.candidate.skill, given.best) if rules.use_semantic_density else None
    decision = decide(evaluation, current, best, rules, force, skills)
    if not evaluation.scores:
        return evaluation, decision
    mean = evaluation.gate_mean(rules)
    found: dict[str, Any] = {"candidate_mean": mean}
    if covered:
        found["density"] = density(mean, given.candidate.skill)
        found["interval"] = interval(evaluation, rules)
        found["by_type"] = scores_by_type(evaluation, {one.id: one.task_types for one in given.items}, rules)
    return evaluation, decision.model_copy(update=found)


def entry_of(
    step: int, reflected: ReflectedItems, ranked: Patch, report: EditApplyReport, action: Action, compared: PairedTable
) -> BufferEntry:
    """Return the entry of a step; `compared` is the candidate against the current skill."""
    listed = () if action is Action.INDECISIVE else tried_edits(ranked, report)
    measured = compared if listed and compared.pairs else None
    return BufferEntry(
        step=step,
        items=len(reflected.item_ids),
        failed=reflected.failed,
        failure_patterns=ranked.failure_patterns,
        accepted_edits=listed if action.accepted else (),
        rejected_edits=listed if action is Action.REJECT else (),
        undecided_edits=listed if action is Action.UNDERPOWERED else (),
        score_before=None if measured is None else measured.other_score,
        score_after=None if measured is None else measured.score,
        interval=None if measured is None else (measured.low, measured.high),
    )


def _row(
    given: GateInput, evaluation: Evaluation, decision: GateDecision, after: RunState, notes: Sequence[EditReport]
) -> MomentHistory:
    moment, rules, skill, candidate = given.moment, given.config.evaluation, given.current.skill, given.candidate.skill
    is_measured = decision.bound is None and candidate != skill and bool(evaluation.scores)
    saved = len(given.items) * rules.samples - sum(map(len, given.rollouts.values()))
    scores = after.current.evaluation
    return MomentHistory(
        name=moment.name,
        kind=moment.kind,
        step=moment.step,
        epoch=moment.epoch,
        decision=decision,
        candidate=SplitScore.of(evaluation, rules, version=given.before.newest + 1) if is_measured else None,
        score_after=scores.gate_mean(rules) if scores.scores else None,
        best_score=after.best.evaluation.gate_mean(rules),
        skill_version=after.current.version,
        edits=(*given.report.rows, *notes),
        diff=diff_of(skill.text, candidate.text),
        failure_patterns=given.applied.failure_patterns,
        fallbacks=given.applied.fallbacks,
        cancelled=0 if decision.bound is None else saved,
    )
