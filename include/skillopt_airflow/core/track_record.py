"""The scores of a run's skills so far on each item of the selection split."""

import math

from pydantic import Field

from skillopt_airflow.core.item_scores import Evaluation, metric_value
from skillopt_airflow.core.training_groups import EvaluationGroup
from skillopt_airflow.core.types import Value

WEIGHT_OF_CURRENT = 2.0
"""Earlier candidates that the current skill counts for: it is what the next candidate differs least from."""


class ItemRecord(Value):
    """The scores of one item."""

    total: float
    count: int


class TrackRecord(Value):
    """The records by item id; values of the gate's metric."""

    items: dict[str, ItemRecord] = Field(default_factory=dict)
    stored: str = ""
    """Name under which the run keeps the items; empty if nowhere yet, or in the same document."""

    def expected(self, item: str, current: float) -> float:
        """Estimate the next candidate's score on the item, given the current skill's."""
        record = self.items.get(item, ItemRecord(total=0.0, count=0))
        return (WEIGHT_OF_CURRENT * current + record.total) / (WEIGHT_OF_CURRENT + record.count)

    def with_scores(self, evaluation: Evaluation, rules: EvaluationGroup) -> "TrackRecord":
        """Return the record after one more candidate was measured, wholly or in part."""
        items = dict(self.items)
        for item, score in evaluation.scores.items():
            before = items.get(item, ItemRecord(total=0.0, count=0))
            value = metric_value(score, rules.gate_metric, rules.gate_mixed_weight)
            items[item] = ItemRecord(total=math.fsum((before.total, value)), count=before.count + 1)
        return TrackRecord(items=items)
