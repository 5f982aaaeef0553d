"""From rollouts to evaluations; failed rollouts count as missing, never as 0.

The items of a group, such as those on one document, are one observation, because their scores are dependent.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from statistics import fmean
from typing import Literal

from pydantic import Field

from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.failure_reasons import FailureReason
from skillopt_airflow.core.values.types import ItemRef, RolloutResult, Score, Status, UnitInterval, Value


def count_groups(groups: Sequence[str]) -> int | None:
    """Count the groups, given each item's group or an empty string; None if no item has a group."""
    return len(group_sizes(groups)) if any(groups) else None


def group_sizes(groups: Sequence[str]) -> tuple[int, ...]:
    """Return the number of items per group; an item without a group forms its own."""
    return (*Counter(group for group in groups if group).values(), *[1] * groups.count(""))


def group_values(items: Mapping[str, float], groups: Mapping[str, str]) -> list[list[float]]:
    """Return the items' values by group; an item without a group forms its own."""
    found: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for item, value in sorted(items.items()):
        group = groups.get(item, "")
        found[("group", group) if group else ("item", item)].append(value)
    return list(found.values())


Metric = Literal["hard", "soft", "mixed"]


class ItemScore(Value):
    """The scores of one item, each the mean over its samples."""

    hard: UnitInterval
    soft: UnitInterval


LOST, WON = ItemScore(hard=0.0, soft=0.0), ItemScore(hard=1.0, soft=1.0)


class Evaluation(Value):
    """A skill's scores on a split by item id, and the number of items without a score by status."""

    scores: dict[str, ItemScore]
    failures: dict[Status, int] = Field(default_factory=dict)
    reason: FailureReason | None = Field(default=None, exclude=True)
    """The most frequent reason of the failures, if known; not stored."""
    cancelled: int = Field(default=0, ge=0)
    """Items that didn't run because the candidate had already lost; they aren't failures."""
    groups: dict[str, str] = Field(default_factory=dict)
    """Groups by item id; see `Item.group`."""
    stored: str = ""
    """Name under which the run stores scores and groups; empty if not yet stored, or in the same document."""

    @property
    def size(self) -> int:
        return len(self.scores) + sum(self.failures.values()) + self.cancelled

    @property
    def coverage(self) -> float:
        """Share of the items with a score; 0 for an empty evaluation."""
        return len(self.scores) / self.size if self.size else 0.0

    @property
    def lacking(self) -> str:
        """Numbers of the items without a score, by what became of them."""
        counts = [*sorted(self.failures.items()), ("cancelled", self.cancelled)]
        return ", ".join(f"{count} {status}" for status, count in counts if count)

    def mean(self, metric: Metric, mixed_weight: float = 0.5) -> float:
        """Return the mean over the scored items; raise DataError if there are none."""
        if not self.scores:
            raise DataError("no item of this evaluation was scored, so it has no mean")
        # A plain sum depends on the order, so a rounding error could turn a tie into a win.
        return fmean(metric_value(score, metric, mixed_weight) for score in self.scores.values())

    def gate_mean(self, rules: EvaluationGroup) -> float:
        return self.mean(rules.gate_metric, rules.gate_mixed_weight)


def evaluation_of(
    items: Sequence[ItemRef], rollouts: Mapping[str, Sequence[RolloutResult]], samples: int = 1
) -> Evaluation:
    """Collect the rollouts of the items, by item id, with one or more samples of each, in any order.

    An item's score is the mean over its samples. An item with fewer than `samples` scored ones has no score and counts
    as its `failed_sample`: a mean over fewer has another distribution, which a sign test would count as a difference.
    """

    @cache
    def score(of_samples: tuple[tuple[float, float], ...]) -> ItemScore:
        # Cached because many items have the same scores.
        hard, soft = zip(*of_samples, strict=True)
        return ItemScore(hard=fmean(hard), soft=fmean(soft))

    scores: dict[str, ItemScore] = {}
    failed: list[RolloutResult] = []
    for item in items:
        found = rollouts.get(item.id, ())
        scored = tuple((one.hard, one.soft) for one in found if one.hard is not None and one.soft is not None)
        if len(scored) >= max(samples, 1):
            scores[item.id] = score(scored)
        else:
            failed.append(failed_sample(item.id, found))
    return Evaluation(
        scores=scores,
        failures=dict(Counter(one.status for one in failed)),
        reason=FailureReason.of(failed, len(items)),
        groups={item.id: item.group for item in items if item.group},
    )


def failed_sample(item_id: str, rollouts: Iterable[RolloutResult]) -> RolloutResult:
    """Return the latest failed sample of an item; a sandbox_error if samples are only missing."""
    ended = [one for one in rollouts if one.hard is None]
    missing = RolloutResult(item_id, Status.SANDBOX_ERROR, "it has no stored rollout", 0.0, None, None)
    return max(ended, key=lambda one: (one.started, one.status, one.error), default=missing)


def metric_value(score: ItemScore | Score, metric: Metric, mixed_weight: float) -> float:
    """Return the score that the gate compares: hard, soft, or (1 - w) hard + w soft."""
    if metric == "mixed":
        return (1 - mixed_weight) * score.hard + mixed_weight * score.soft
    return score.hard if metric == "hard" else score.soft


def gate_value(score: ItemScore | Score, rules: EvaluationGroup) -> float:
    return metric_value(score, rules.gate_metric, rules.gate_mixed_weight)


def is_failure(score: Score) -> bool:
    return score.hard < 1


def covers(evaluation: Evaluation, rules: EvaluationGroup) -> bool:
    return evaluation.size > 0 and evaluation.coverage >= rules.min_coverage
