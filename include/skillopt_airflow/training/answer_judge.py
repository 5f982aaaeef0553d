"""Answers that a model judges, because a benchmark's rules cannot decide on them."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING

from skillopt_airflow.core.errors import ModelError
from skillopt_airflow.core.grading import GradingRequest, score_by
from skillopt_airflow.core.protocols import AsksJudge, Benchmark
from skillopt_airflow.core.scoring.scoring_rule import MAX_ANSWER_CHARS
from skillopt_airflow.core.training_groups import EvaluationGroup
from skillopt_airflow.core.types import Grade, Item, ModelCall, Rollout, Status
from skillopt_airflow.store.keys import grades_of
from skillopt_airflow.training.answer_cache import RememberingJudge
from skillopt_airflow.training.spending import BudgetShare

if TYPE_CHECKING:
    from skillopt_airflow.training.run import TrainingRun


def in_doubt(benchmark: Benchmark, rules: EvaluationGroup, item: Item, rollout: Rollout) -> GradingRequest | None:
    """Return what a judge is to be asked about a rollout that the rules have scored; None if nothing.

    No judge is asked about an answer that is too long for the rules.
    """
    if len(rollout.trajectory.answer) > MAX_ANSWER_CHARS:
        return None
    if rollout.score is None or rules.judge == "rules" or not isinstance(benchmark, AsksJudge):
        return None
    if rules.judge == "rules_first" and benchmark.decides(item, rollout.trajectory):
        return None
    return benchmark.grading(item, rollout.trajectory)


def with_grade(rollout: Rollout, ask: Callable[[], Grade]) -> Rollout:
    """Return a scored rollout with the judge's score; one that failed if there is no grade."""
    if rollout.score is None:
        return rollout
    try:
        return Rollout(trajectory=rollout.trajectory, score=score_by(ask(), rollout.score))
    except ModelError as error:
        failed = rollout.trajectory.model_copy(update={"status": Status.JUDGE_ERROR, "error": str(error)[:500]})
        return Rollout(trajectory=failed, score=None)


def judged(
    run: "TrainingRun",
    rollouts: Sequence[tuple[Item, Rollout]],
    at_once: int,
    share: BudgetShare,
    calls: list[ModelCall],
) -> list[Rollout]:
    """Return the rollouts with the judge's scores where the rules cannot decide; new calls are added to `calls`.

    A grade is stored by question, answer and judge, so it is paid once, by whichever run comes to it first.
    """
    rules = run.config.evaluation
    requests = [in_doubt(run.benchmark, rules, item, rollout) for item, rollout in rollouts]
    wanted = {request: None for request in requests if request is not None}
    if not wanted:
        return [rollout for _, rollout in rollouts]
    model = run.model_of("judge")

    def count(call: ModelCall) -> None:
        calls.append(call)
        share.count(call)

    with ExitStack() as opened:
        judge = RememberingJudge(
            lambda: opened.enter_context(run.connections.judge(model, count, share.begin)),
            str(model.judge),
            run.store,
            grades_of(run.ref.storage.prefix, run.ref.benchmark),
        )
        with ThreadPoolExecutor(at_once) as pool:
            asked = {request: pool.submit(judge.grade, request) for request in wanted}
        return [
            rollout if request is None else with_grade(rollout, asked[request].result)
            for (_, rollout), request in zip(rollouts, requests, strict=True)
        ]
