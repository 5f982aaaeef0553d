"""Scores by the type of task, for data sets whose records name one."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence

from skillopt_airflow.core.item_scores import Evaluation, metric_value
from skillopt_airflow.core.record_fields import found_at
from skillopt_airflow.core.training_groups import EvaluationGroup
from skillopt_airflow.core.types import JsonObject, Value


class TypeScore(Value):
    """A skill's score on the items of one type."""

    task_type: str
    items: int
    """Number of these items that have a score."""
    score: float
    """Their mean of the gate metric."""


def task_types(record: JsonObject, key: str) -> tuple[str, ...]:
    """Return the types of a record in alphabetical order: the text or number at the key, or a list of these.

    The key may be a path, see `found_at`. There is none where it leads to nothing that can name one.
    """
    value = found_at(record, key)
    named = {str(one).strip() for one in (value if isinstance(value, list) else [value]) if isinstance(one, str | int)}
    return tuple(sorted(named - {""}))


def scores_by_type(
    evaluation: Evaluation, types: Mapping[str, Sequence[str]], rules: EvaluationGroup
) -> tuple[TypeScore, ...]:
    """Return a score for each type in alphabetical order; an item of several types counts in each.

    Args:
        evaluation: scores by item id.
        types: types by item id; an item without one is left out.
        rules: say what the gate compares.
    """
    values: defaultdict[str, list[float]] = defaultdict(list)
    for item_id, score in evaluation.scores.items():
        for name in types.get(item_id, ()):
            values[name].append(metric_value(score, rules.gate_metric, rules.gate_mixed_weight))
    return tuple(
        TypeScore(task_type=name, items=len(found), score=math.fsum(found) / len(found))
        for name, found in sorted(values.items())
    )
