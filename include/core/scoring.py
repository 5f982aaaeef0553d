"""From rollouts to an evaluation; what failed counts as missing, never as 0."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Literal

from pydantic import Field

from include.core.config import EvaluationGroup
from include.core.errors import DataError
from include.core.types import Rollout, Score, Status, UnitInterval, Value

Metric = Literal["hard", "soft", "mixed"]


class ItemScore(Value):
    """The two scores of one item."""

    hard: UnitInterval
    soft: UnitInterval


class Evaluation(Value):
    """A skill measured on a split: `scores` by item id, and how many items ended in each other status."""

    scores: dict[str, ItemScore]
    failures: dict[Status, int] = Field(default_factory=dict)

    @property
    def size(self) -> int:
        """Items that were meant to be scored."""
        return len(self.scores) + sum(self.failures.values())

    @property
    def coverage(self) -> float:
        """Share of the items that have a score; 0 for an empty evaluation."""
        return len(self.scores) / self.size if self.size else 0.0

    def mean(self, metric: Metric, mixed_weight: float = 0.5) -> float:
        """Mean over the scored items.

        Raises:
            DataError: no item was scored, so there is no mean.
        """
        if not self.scores:
            raise DataError("no item of this evaluation was scored, so it has no mean")
        values = [metric_value(score, metric, mixed_weight) for score in self.scores.values()]
        return math.fsum(values) / len(values)


def evaluation_of(item_ids: Sequence[str], rollouts: Iterable[Rollout]) -> Evaluation:
    """Collect the rollouts of the items; an item without a rollout is a sandbox_error."""
    by_item = {rollout.trajectory.item_id: rollout for rollout in rollouts}
    scores: dict[str, ItemScore] = {}
    failures: Counter[Status] = Counter()
    for item_id in item_ids:
        rollout = by_item.get(item_id)
        if rollout is not None and rollout.score is not None:
            scores[item_id] = ItemScore(hard=rollout.score.hard, soft=rollout.score.soft)
        else:
            failures[rollout.trajectory.status if rollout else Status.SANDBOX_ERROR] += 1
    return Evaluation(scores=scores, failures=dict(failures))


def metric_value(score: ItemScore | Score, metric: Metric, mixed_weight: float) -> float:
    """The number that the gate compares: hard, soft, or (1 - w) hard + w soft."""
    if metric == "mixed":
        return (1 - mixed_weight) * score.hard + mixed_weight * score.soft
    return score.hard if metric == "hard" else score.soft


def is_failure(score: Score) -> bool:
    """Reflection's line between failures and successes."""
    return score.hard < 1


def covers(evaluation: Evaluation, rules: EvaluationGroup) -> bool:
    """Whether enough items were scored to decide on."""
    return evaluation.size > 0 and evaluation.coverage >= rules.min_coverage
