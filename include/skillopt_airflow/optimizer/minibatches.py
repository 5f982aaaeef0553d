"""Minibatches: the rollouts of a step, cut into what one reflection call sees (paper section 3.3)."""

import random
from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby

from skillopt_airflow.core.item_scores import is_failure
from skillopt_airflow.core.types import Rollout, Score, SourceType, Value

Tries = tuple[Rollout, ...]
"""The scored rollouts of one item, the lowest score first."""


class Minibatch(Value):
    """Rollouts of items of one outcome that one call reflects on; the tries of an item are in a row."""

    source_type: SourceType
    index: int
    rollouts: tuple[Rollout, ...]

    @property
    def name(self) -> str:
        return f"{self.source_type}-{self.index}"

    @property
    def items(self) -> list[Tries]:
        return [tuple(tries) for _, tries in groupby(self.rollouts, key=_item_id)]

    @property
    def halves(self) -> "list[Minibatch]":
        """Its items in two parts; itself if it has one item."""
        items = self.items
        parts = [part for part in (items[: len(items) // 2], items[len(items) // 2 :]) if part]
        return [self.model_copy(update={"rollouts": tuple(one for tries in part for one in tries)}) for part in parts]

    @property
    def repeats(self) -> bool:
        return len(self.items) < len(self.rollouts)


def minibatches(slices: Sequence[Sequence[Rollout]], size: int, seed: str, failure_only: bool) -> list[Minibatch]:
    """Shuffle each slice's items by seed and cut them, `size` in a minibatch, failures and successes apart.

    Failures come first. An item is in one minibatch with all its scored rollouts, see `by_outcome`. Indices run on from
    slice to slice, so a further slice changes nothing about the minibatches before it. The result does not depend on
    the order in which the items of a slice arrive. With `failure_only` successes are left out.
    """
    cut: list[Minibatch] = []
    used: dict[SourceType, int] = {"failure": 0, "success": 0}
    for rollouts in slices:
        for source_type, group in by_outcome(rollouts).items():
            if failure_only and source_type == "success":
                continue
            random.Random(f"{seed}-{source_type}").shuffle(group)  # noqa: S311 - a shuffle, not a secret
            for start in range(0, len(group), size):
                part = tuple(rollout for tries in group[start : start + size] for rollout in tries)
                cut.append(Minibatch(source_type=source_type, index=used[source_type], rollouts=part))
                used[source_type] += 1
    return cut


def by_outcome(rollouts: Sequence[Rollout]) -> dict[SourceType, list[Tries]]:
    """Return the items that failed and those that succeeded, by id; rollouts without a score are left out.

    An item that was tried several times is a failure if the mean of its hard scores is below 1: won and lost, it has
    something to compare. Of equal scores the tries keep their order.
    """
    scores: defaultdict[str, list[tuple[Score, Rollout]]] = defaultdict(list)
    for rollout in rollouts:
        if rollout.score is not None:
            scores[_item_id(rollout)].append((rollout.score, rollout))
    groups: dict[SourceType, list[Tries]] = {"failure": [], "success": []}
    for _, tries in sorted(scores.items()):
        tries.sort(key=lambda one: (one[0].hard, one[0].soft))
        # No score is above 1, so that the mean is below 1 if the lowest is.
        groups["failure" if is_failure(tries[0][0]) else "success"].append(tuple(rollout for _, rollout in tries))
    return groups


def _item_id(rollout: Rollout) -> str:
    return rollout.trajectory.item_id
