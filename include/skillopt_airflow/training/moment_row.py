"""The row of the history that a gate stores."""

from skillopt_airflow.core.edits import EditApplyReport
from skillopt_airflow.core.gate import GateDecision
from skillopt_airflow.core.item_scores import Evaluation
from skillopt_airflow.core.measured_score import SplitScore
from skillopt_airflow.core.run_history import MomentHistory
from skillopt_airflow.core.state import RunState
from skillopt_airflow.core.timeline import Moment
from skillopt_airflow.core.types import Patch, Split
from skillopt_airflow.optimizer.answers import separate
from skillopt_airflow.report.view import diff_of
from skillopt_airflow.training import timing
from skillopt_airflow.training.evaluation import draws_of
from skillopt_airflow.training.lapse_notes import note_rows
from skillopt_airflow.training.run import TrainingRun


def store_row(
    run: TrainingRun,
    moment: Moment,
    before: RunState,
    after: RunState,
    evaluation: Evaluation,
    decision: GateDecision,
) -> None:
    """Store the moment's row, before the state that commits the moment and after the timing of its last task."""
    keys, rules = run.keys.moment(moment), run.config.evaluation
    skill, candidate = run.skill(before.current.version), run.document(keys.candidate_skill)
    cut_short = decision.bound is not None or decision.screened_out is not None
    is_measured = not cut_short and candidate != skill and bool(evaluation.scores)
    patch, current = run.store.get_model(keys.applied_patch, Patch), after.current.evaluation
    timings = timing.load(run.store, keys)
    row = MomentHistory(
        name=moment.name,
        kind=moment.kind,
        step=moment.step,
        epoch=moment.epoch,
        decision=decision,
        candidate=SplitScore.of(evaluation, rules, version=before.newest + 1) if is_measured else None,
        score_after=current.gate_mean(rules) if current.scores else None,
        best_score=after.best.evaluation.gate_mean(rules),
        skill_version=after.current.version,
        edits=(*run.store.get_model(keys.edit_apply_report, EditApplyReport).rows, *note_rows(run, moment)),
        diff=diff_of(skill.text, candidate.text),
        failure_patterns=patch.failure_patterns,
        fallbacks=separate(patch.fallback),
        cancelled=_cancelled(run, moment, decision),
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


def _cancelled(run: TrainingRun, moment: Moment, decision: GateDecision) -> int:
    """Count the rollouts of whole evaluations that were left out: those without a row after an early rejection."""
    whole, keys = len(run.item_refs(Split.VAL)) * run.config.evaluation.draws, run.keys.moment(moment)
    if decision.screened_out is not None:
        return whole
    cut = [keys.proposal(one.proposal) for one in decision.contenders if one.bound is not None]
    if not decision.contenders and decision.bound is not None:
        cut = [keys]
    ran = (draws_of(run, Split.VAL, run.document(one.candidate_skill)) for one in cut)
    return sum(whole - sum(len(draws) for draws in found.values()) for found in ran)
