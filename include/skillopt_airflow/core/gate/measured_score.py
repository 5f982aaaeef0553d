"""A skill's measured score on a split, and the required coverage."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Self

from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.gate.item_scores import Evaluation, covers, gate_value
from skillopt_airflow.core.gate.paired import interval
from skillopt_airflow.core.values.failure_reasons import low_coverage
from skillopt_airflow.core.values.types import UnitInterval, Value


class TypeScore(Value):
    """A skill's score, the mean of the gate metric, on the scored items of one type."""

    task_type: str
    items: int
    score: float


def scores_by_type(
    evaluation: Evaluation, types: Mapping[str, Sequence[str]], rules: EvaluationGroup
) -> tuple[TypeScore, ...]:
    """Return a score per type, sorted by type; an item with several types counts in each."""
    values: defaultdict[str, list[float]] = defaultdict(list)
    for item_id, score in evaluation.scores.items():
        for name in types.get(item_id, ()):
            values[name].append(gate_value(score, rules))
    return tuple(TypeScore(task_type=name, items=len(own), score=fmean(own)) for name, own in sorted(values.items()))


class MeasuredScore(Value):
    """Mean scores over the items with a score; subclasses add more fields of an evaluation."""

    hard: UnitInterval
    soft: UnitInterval
    low: UnitInterval
    """Lower end of the 95% confidence interval of the gate metric's mean."""
    high: UnitInterval
    by_type: tuple[TypeScore, ...] = ()
    """Scores by type of task, if items have types."""

    @classmethod
    def of(cls, evaluation: Evaluation, rules: EvaluationGroup, **more: object) -> Self:
        """Summarize an evaluation in the fields of the class; `more` has fields that an evaluation lacks."""
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
    """A version of the skill on a split of its run; its score is the mean of the gate metric."""

    version: int
    score: float
    coverage: float


def require_coverage(evaluation: Evaluation, rules: EvaluationGroup, measured: str, advice: str = "") -> None:
    """Raise DataError if fewer than `min_coverage` of the items have a score; `measured` names skill and items."""
    if not covers(evaluation, rules):
        problem = low_coverage(evaluation.coverage, rules.min_coverage, evaluation.reason)
        raise DataError(f"{measured}: {problem}{advice and f'; {advice}'}")
