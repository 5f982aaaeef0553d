"""Minibatches: the rollouts of a step, cut into what one reflection call sees (paper section 3.3)."""

import random
from collections.abc import Sequence

from skillopt_airflow.core.item_scores import is_failure
from skillopt_airflow.core.types import Rollout, SourceType, Value


class Minibatch(Value):
    """Rollouts of one outcome that one call reflects on."""

    source_type: SourceType
    index: int
    rollouts: tuple[Rollout, ...]

    @property
    def name(self) -> str:
        """Its name in keys and in the provenance of edits."""
        return f"{self.source_type}-{self.index}"


def minibatches(slices: Sequence[Sequence[Rollout]], size: int, seed: str, failure_only: bool) -> list[Minibatch]:
    """Shuffle each slice's scored rollouts by seed and cut them, failures and successes apart; failures first.

    Indices run on from slice to slice, so a further slice changes nothing about the minibatches before it. The result
    does not depend on the order in which the rollouts of a slice arrive. With `failure_only` successes are left out.
    """
    cut: list[Minibatch] = []
    used: dict[SourceType, int] = {"failure": 0, "success": 0}
    for rollouts in slices:
        for source_type, group in _by_outcome(rollouts).items():
            if failure_only and source_type == "success":
                continue
            random.Random(f"{seed}-{source_type}").shuffle(group)  # noqa: S311 - a shuffle, not a secret
            for start in range(0, len(group), size):
                part = tuple(group[start : start + size])
                cut.append(Minibatch(source_type=source_type, index=used[source_type], rollouts=part))
                used[source_type] += 1
    return cut


def most_minibatches(batch_size: int, size: int, accumulation: int) -> int:
    """Return the most minibatches of a step, whichever way its slices split into failures and successes."""
    return accumulation * min(batch_size, (batch_size - 2) // size + 2)


def _by_outcome(rollouts: Sequence[Rollout]) -> dict[SourceType, list[Rollout]]:
    groups: dict[SourceType, list[Rollout]] = {"failure": [], "success": []}
    for rollout in sorted(rollouts, key=lambda rollout: rollout.trajectory.item_id):
        if rollout.score is not None:
            groups["failure" if is_failure(rollout.score) else "success"].append(rollout)
    return groups
