"""A run's history: a row a moment, from what the moments stored."""

from concurrent.futures import Executor, ThreadPoolExecutor

from skillopt_airflow.core.budget import by_stage
from skillopt_airflow.core.edits import EditApplyReport
from skillopt_airflow.core.gate import GateDecision
from skillopt_airflow.core.measured_score import SplitScore
from skillopt_airflow.core.run_history import History, MomentHistory, Publication, StepSeconds
from skillopt_airflow.core.state import RunState
from skillopt_airflow.core.timeline import Moment
from skillopt_airflow.core.types import Patch, Split
from skillopt_airflow.optimizer.answers import separate
from skillopt_airflow.training import timing
from skillopt_airflow.training.done_rollouts import DoneRollouts
from skillopt_airflow.training.evaluation import by_type, draws_of, measured
from skillopt_airflow.training.run import TrainingRun

READERS = 4
"""Moments, plans or skills that are read at the same time; the parts of each are, too."""


def history_of(
    run: TrainingRun, published: Publication | None = None, withheld: str = "", test_looks: int | None = None
) -> History:
    """Compile the history from the run's stored documents; the arguments are what others know."""
    record, rules = run.record, run.config.evaluation
    final = run.state(run.timeline[-1])
    seed = run.state(run.timeline[0]).best.evaluation
    with ThreadPoolExecutor(READERS) as pool:
        moments = _moments(run, final, pool)
        done = DoneRollouts.of(run, pool)
    return History(
        benchmark=record.benchmark,
        run=record.run,
        target=str(record.config.model.target),
        optimizer=str(record.config.model.optimizer),
        metric=rules.gate_metric,
        seed_val_score=seed.gate_mean(rules),
        best_val_score=final.best.evaluation.gate_mean(rules),
        best_version=final.best.version,
        stopped=final.stopped,
        moments=moments,
        test=_test(run, final),
        test_looks=test_looks,
        costs=by_stage(run.usage.calls(run.ref.benchmark, run.ref.run), record.prices),
        rollouts=done.counts(moments),
        outcomes=done.outcomes(),
        published=published,
        withheld=withheld,
    )


def gated_moments(run: TrainingRun, final: RunState) -> tuple[Moment, ...]:
    """Return the moments that were reached between the seed and the run's end."""
    if not final.stopped:
        return run.timeline[1:-1]
    last = run.timeline.index(run.last_committed())
    return run.timeline[1 : last + 1]


def _moments(run: TrainingRun, final: RunState, pool: Executor) -> tuple[MomentHistory, ...]:
    gated = gated_moments(run, final)
    timings = list(pool.map(lambda moment: timing.load(run.store, run.keys.moment(moment)), gated))
    states = list(pool.map(run.state, (run.timeline[0], *gated)))
    begun = [min(row.started for row in rows) for rows in timings[:1]]
    ends = [max(row.ended for row in rows) for rows in timings]
    seconds = map(timing.step_seconds, timings, begun + ends)
    return tuple(pool.map(lambda *one: _moment(run, *one), gated, states, states[1:], seconds))


def _moment(run: TrainingRun, moment: Moment, before: RunState, after: RunState, seconds: StepSeconds) -> MomentHistory:
    keys, rules = run.keys.moment(moment), run.config.evaluation
    decision = run.store.get_model(keys.gate, GateDecision)
    report = run.store.get_model(keys.edit_apply_report, EditApplyReport)
    return MomentHistory(
        name=moment.name,
        kind=moment.kind,
        step=moment.step,
        epoch=moment.epoch,
        decision=decision,
        candidate_score=decision.against_current.score if decision.against_current.pairs else None,
        current_score=before.current.evaluation.gate_mean(rules) if before.current.evaluation.scores else None,
        best_score=after.best.evaluation.gate_mean(rules),
        edits_applied=report.count("applied", "applied_as_append"),
        edits_skipped=report.count("skipped"),
        skill_version=after.current.version,
        fallbacks=separate(run.store.get_model(keys.applied_patch, Patch).fallback),
        cancelled=_cancelled(run, moment, decision),
        seconds=seconds,
    )


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


def _test(run: TrainingRun, final: RunState) -> dict[str, SplitScore]:
    if not run.config.evaluation.eval_test or final.stopped:
        return {}
    versions = {"seed": 0, "best": final.best.version, "last": final.current.version}
    scores: dict[str, SplitScore] = {}
    for name, version in versions.items():
        run.merge_parts(Split.TEST, [run.skill(version)])
        evaluation = measured(run, Split.TEST, run.skill(version))
        if evaluation.scores:
            scores[name] = SplitScore.of(
                evaluation, run.config.evaluation, version=version, by_type=by_type(run, Split.TEST, evaluation)
            )
    return scores
