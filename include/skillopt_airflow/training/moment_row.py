"""The row of the history that a gate stores."""

from skillopt_airflow.core.measured_score import SplitScore
from skillopt_airflow.core.moment_gate import GateInput, GateOutcome
from skillopt_airflow.core.run_history import MomentHistory
from skillopt_airflow.core.timeline import Moment
from skillopt_airflow.core.types import Patch
from skillopt_airflow.optimizer.answers import separate
from skillopt_airflow.report.view import diff_of
from skillopt_airflow.training import timing
from skillopt_airflow.training.run import TrainingRun


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
        fallbacks=separate(patch.fallback),
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
