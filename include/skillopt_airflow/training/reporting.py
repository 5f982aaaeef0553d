"""The run's history and its page, from what its moments stored."""

import math

from skillopt_airflow.core.edits import EditApplyReport
from skillopt_airflow.core.errors import ObjectMissing
from skillopt_airflow.core.item_scores import Evaluation
from skillopt_airflow.core.paired import interval
from skillopt_airflow.core.provenance import LinesOfSkill
from skillopt_airflow.core.timeline import Moment
from skillopt_airflow.core.types import Patch, Split
from skillopt_airflow.report.run_page import render
from skillopt_airflow.report.view import Estimate, MomentView, ReportView, RolloutCounts, Seconds, TestMark, diff_of
from skillopt_airflow.training.evaluation import measured
from skillopt_airflow.training.history import History, MomentHistory, gated_moments, history_of
from skillopt_airflow.training.publishing import Publication
from skillopt_airflow.training.run import TrainingRun


def write_report(run: TrainingRun, published: Publication | None = None, withheld: str = "") -> History:
    """Store history.json and report.html; a second time, after publishing, over the first.

    What the run published once stays said, whatever is withheld later.
    """
    if published is None:
        published = _published_before(run)
    history = history_of(run, published, "" if published is not None else withheld)
    run.store.put_text(run.keys.report, render(view_of(run, history)))
    run.store.put_model(run.keys.history, history)
    return history


def _published_before(run: TrainingRun) -> Publication | None:
    try:
        return run.store.get_model(run.keys.history, History).published
    except ObjectMissing:
        return None


def view_of(run: TrainingRun, history: History) -> ReportView:
    """All that the page shows."""
    final = run.state(run.timeline[-1])
    best = run.skill(final.best.version)
    named = {moment.name: moment for moment in gated_moments(run, final)}
    return ReportView(
        benchmark=history.benchmark,
        run=history.run,
        target=history.target,
        optimizer=history.optimizer,
        standin=any("stand-in" in name for name in (history.target, history.optimizer)),
        created=run.record.created,
        metric=history.metric,
        gate_policy=run.config.evaluation.gate_policy,
        total_steps=run.record.total_steps,
        stopped=history.stopped,
        published=history.published.version if history.published is not None else "",
        withheld=history.withheld,
        seed=_estimate(run, run.state(run.timeline[0]).best.evaluation),
        best=_estimate(run, final.best.evaluation),
        best_version=final.best.version,
        moments=tuple(_moment(run, named[row.name], row) for row in history.moments),
        test=tuple(
            TestMark(
                name=name,
                version=score.version,
                score=_estimate(run, measured(run, Split.TEST, run.skill(score.version))),
            )
            for name, score in history.test.items()
        ),
        skill=best.text,
        lines=run.store.get_model(run.keys.line_origins(final.best.version), LinesOfSkill).lines,
        costs=history.costs,
        rollouts=RolloutCounts(
            **history.rollouts.model_dump(include={"ran", "cancelled", "speculated", "wasted"}),
            reused=history.rollouts.reused,
        ),
    )


def _moment(run: TrainingRun, moment: Moment, row: MomentHistory) -> MomentView:
    keys, after = run.keys.moment(moment), run.state(moment)
    before = run.skill(run.state_before(moment).current.version)
    candidate = run.document(keys.candidate_skill)
    patch = run.store.get_model(keys.applied_patch, Patch)
    whole = row.decision.bound is None and candidate != before
    evaluation = measured(run, Split.VAL, candidate) if whole else None
    current = after.current.evaluation
    return MomentView(
        name=row.name,
        kind=row.kind,
        epoch=row.epoch,
        step=row.step,
        decision=row.decision,
        candidate=_estimate(run, evaluation) if evaluation is not None and evaluation.scores else None,
        current_score=_estimate(run, current).mean if current.scores else math.nan,
        best_score=row.best_score,
        version=row.skill_version,
        edits=run.store.get_model(keys.edit_apply_report, EditApplyReport).rows,
        diff=diff_of(before.text, candidate.text),
        failure_patterns=patch.failure_patterns,
        fallbacks=row.fallbacks,
        seconds=Seconds(**row.seconds.model_dump()),
    )


def _estimate(run: TrainingRun, evaluation: Evaluation) -> Estimate:
    rules = run.config.evaluation
    low, high = interval(evaluation, rules)
    return Estimate(
        mean=evaluation.mean(rules.gate_metric, rules.gate_mixed_weight),
        low=low,
        high=high,
        items=evaluation.size,
        coverage=evaluation.coverage,
    )
