"""A skill's measured score on a split, and how many of the items must have one."""

from typing import Self

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.failure_reasons import too_few
from skillopt_airflow.core.item_scores import Evaluation, covers
from skillopt_airflow.core.paired import interval
from skillopt_airflow.core.task_types import TypeScore
from skillopt_airflow.core.training_groups import EvaluationGroup
from skillopt_airflow.core.types import UnitInterval, Value


class MeasuredScore(Value):
    """Mean scores over the items that have one; each document adds what else it keeps of the evaluation."""

    hard: UnitInterval
    soft: UnitInterval
    low: UnitInterval
    """Lower end of the 95 % interval of the gate metric's mean."""
    high: UnitInterval
    by_type: tuple[TypeScore, ...] = ()
    """Scores by the type of task, where items have one."""

    @classmethod
    def of(cls, evaluation: Evaluation, rules: EvaluationGroup, **more: object) -> Self:
        """Summarize an evaluation in the fields that the class has; `more` holds those that an evaluation lacks."""
        low, high = interval(evaluation, rules)
        values = {
            "hard": evaluation.mean("hard"),
            "soft": evaluation.mean("soft"),
            "score": evaluation.gate_mean(rules),
            "low": low,
            "high": high,
            "items": len(evaluation.scores),
            "coverage": evaluation.coverage,
            "failures": evaluation.failures,
        }
        return cls.model_validate({name: values[name] for name in cls.model_fields if name in values} | more)


class SplitScore(MeasuredScore):
    """A version of the skill on a split of its run."""

    version: int
    score: float
    """Mean of the gate metric."""
    coverage: float


def require_coverage(evaluation: Evaluation, rules: EvaluationGroup, measured: str, advice: str = "") -> None:
    """Refuse to conclude from too few scores; `measured` says who was measured on what.

    Raises:
        DataError: fewer than `min_coverage` of the items have a score.
    """
    if not covers(evaluation, rules):
        raise DataError(
            f"{measured}: {too_few(evaluation.coverage, rules.min_coverage, evaluation.reason)}"
            f"{advice and f'; {advice}'}"
        )
