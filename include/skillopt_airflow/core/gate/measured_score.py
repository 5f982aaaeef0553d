"""A skill's measured score on a split, and how many of the items must have one."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Self

from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.gate.item_scores import Evaluation, covers, gate_value
from skillopt_airflow.core.gate.paired import interval
from skillopt_airflow.core.values.failure_reasons import too_few
from skillopt_airflow.core.values.types import UnitInterval, Value


class TypeScore(Value):
    """A skill's score on the items of one type."""

    task_type: str
    items: int
    """Number of these items that have a score."""
    score: float
    """Their mean of the gate metric."""


def scores_by_type(
    evaluation: Evaluation, types: Mapping[str, Sequence[str]], rules: EvaluationGroup
) -> tuple[TypeScore, ...]:
    """Return a score for each type in alphabetical order; an item of several types counts in each."""
    values: defaultdict[str, list[float]] = defaultdict(list)
    for item_id, score in evaluation.scores.items():
        for name in types.get(item_id, ()):
            values[name].append(gate_value(score, rules))
    return tuple(
        TypeScore(task_type=name, items=len(found), score=math.fsum(found) / len(found))
        for name, found in sorted(values.items())
    )


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
