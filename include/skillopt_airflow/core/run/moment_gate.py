"""The gate of a moment: from a candidate's rollouts to the verdict and the moment's final state."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.gate.decision import EQUAL, GateDecision, decide, reject
from skillopt_airflow.core.gate.item_scores import Evaluation, covers, evaluation_of
from skillopt_airflow.core.gate.measured_score import scores_by_type
from skillopt_airflow.core.gate.paired import interval
from skillopt_airflow.core.run.early_rejection import RunningEvaluation, may_end_early, reject_early
from skillopt_airflow.core.run.state import Measured, ReflectedItems, RunState, TrackRecord, advance, entry_of
from skillopt_airflow.core.run.timeline import Moment, writes_guidance
from skillopt_airflow.core.values.edits import EditApplyReport, apply_edits
from skillopt_airflow.core.values.provenance import LinesOfSkill, trace
from skillopt_airflow.core.values.skill import SkillDocument, density
from skillopt_airflow.core.values.types import Edit, ItemRef, Patch, RolloutResult


class SkillVersion(NamedTuple):
    """A skill, and the origins of its lines."""

    skill: SkillDocument
    lines: LinesOfSkill


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
    """The candidate's rollouts by item id, one per draw; unused if the candidate equals the current skill."""
    report: EditApplyReport
    """The candidate's edits."""
    ranked: Patch | None
    """The selected edits of a step."""
    reflected: ReflectedItems | None
    """The items in a step's reflection."""
    notes: Sequence[Edit]
    """Edits that are applied whatever the verdict."""
    memory: str | None
    """The optimizer's new memory; None if the moment leaves none."""
    stop: str
    """The reason why the run stops after this moment; empty if it continues."""


class GateOutcome(NamedTuple):
    """The verdict and its effects."""

    evaluation: Evaluation
    """The candidate's evaluation, which is incomplete after an early rejection."""
    decision: GateDecision
    state: RunState
    versions: Mapping[int, SkillVersion]
    """The versions that the moment adds, by number."""
    notes_report: EditApplyReport | None
    """The report on notes, which bypass the gate; None if none was added."""


def pass_gate(given: GateInput) -> GateOutcome:
    before, candidate = given.before, given.candidate.skill
    evaluation, decision = _judged(given)
    number = before.newest + 1
    measured = Measured(version=number, sha256=candidate.sha256, evaluation=evaluation)
    state = advance(before, given.moment, measured, decision)
    update: dict[str, Any] = {"stopped": given.stop}
    if candidate != given.current.skill:
        update["record"] = given.record.with_scores(evaluation, given.config.evaluation)
    if given.memory is not None:
        update["meta_skill"] = given.memory
    if given.ranked is not None and given.reflected is not None:
        entry = entry_of(
            given.moment.step, given.reflected, given.ranked, given.report, decision.action, decision.against_current
        )
        update["buffer"] = state.buffer.with_entry(entry)
    versions = {number: given.candidate} if decision.action.accepted else {}
    outcome = GateOutcome(evaluation, decision, state.model_copy(update=update), versions, None)
    return _with_notes(given, outcome)


def _judged(given: GateInput) -> tuple[Evaluation, GateDecision]:
    moment, config, rules = given.moment, given.config, given.config.evaluation
    current, best = given.before.current.evaluation, given.before.best.evaluation
    memory_only = moment.kind == "slow_update" and not writes_guidance(moment, config.optimizer)
    if given.candidate.skill == given.current.skill:
        decision = reject(current, current, best, rules, f"{EQUAL}, so there was nothing to measure")
        return current, decision.model_copy(update={"memory_only": memory_only})
    item_ids = [item.id for item in given.items]
    if may_end_early(moment, config):
        lost = RunningEvaluation.of(item_ids, given.rollouts, current, rules, given.record).lost()
        if lost is not None:
            return lost[0], reject_early(*lost, current, best, rules)
    evaluation = evaluation_of(
        item_ids,
        [one for draws in given.rollouts.values() for one in draws],
        draws=rules.draws,
        groups={item.id: item.group for item in given.items if item.group},
    )
    forced = moment.kind == "slow_update" and not config.optimizer.slow_update_gate
    skills = (given.candidate.skill, given.best) if rules.use_semantic_density else None
    # Even force doesn't accept an unmeasured candidate, because later candidates couldn't be compared with it.
    decision = decide(evaluation, current, best, rules, force=forced and covers(evaluation, rules), skills=skills)
    return evaluation, decision.model_copy(update=_findings(given, evaluation))


def _findings(given: GateInput, evaluation: Evaluation) -> dict[str, Any]:
    """Return the decision's fields about the candidate itself; only its mean if too few items have a score."""
    rules = given.config.evaluation
    if not evaluation.scores:
        return {}
    mean = evaluation.gate_mean(rules)
    if not covers(evaluation, rules):
        return {"candidate_mean": mean}
    return {
        "candidate_mean": mean,
        "density": density(mean, given.candidate.skill),
        "interval": interval(evaluation, rules),
        "by_type": scores_by_type(evaluation, {item.id: item.task_types for item in given.items}, rules),
    }


def _with_notes(given: GateInput, outcome: GateOutcome) -> GateOutcome:
    """Return the outcome with the notes in the current skill, as a new version with the same scores.

    The best skill gets no unmeasured notes.
    """
    if not given.notes:
        return outcome
    state = outcome.state
    skill, lines = given.candidate if outcome.decision.action.accepted else given.current
    noted, report = apply_edits(skill, given.notes)
    if noted == skill:
        return outcome
    number, first = state.newest + 1, len(given.report.rows)
    rows = tuple(row.model_copy(update={"index": first + row.index}) for row in report.rows)
    report = report.model_copy(update={"rows": rows})
    version = SkillVersion(noted, LinesOfSkill(lines=trace(skill, lines.lines, report, given.moment.name)))
    evaluation = state.current.evaluation
    current = Measured(version=number, sha256=noted.sha256, evaluation=evaluation, has_new_notes=True)
    return outcome._replace(
        state=state.model_copy(update={"current": current, "newest": number}),
        versions={**outcome.versions, number: version},
        notes_report=report,
    )
