"""Cutting records into splits: the same records, ratio and seed always give the same splits."""

import random
from collections.abc import Sequence
from typing import TypeVar

from skillopt_airflow.core.types import ALL_DATA_SPLITS, Split

Record = TypeVar("Record")


def split_by_ratio(records: Sequence[Record], ratio: str, seed: int) -> dict[Split, list[Record]]:
    """Shuffle by seed and cut into train, val, test and, if the ratio has four parts, publish.

    Args:
        records: all of them, in the file's order.
        ratio: parts of train, val and test, such as `2:1:7`, and of publish, such as `2:1:5:2`.
        seed: seed of the shuffle.
    """
    shuffled = list(records)
    random.Random(seed).shuffle(shuffled)  # noqa: S311
    splits: dict[Split, list[Record]] = {}
    start = 0
    parts = [int(part) for part in ratio.split(":")]
    for split, count in zip(ALL_DATA_SPLITS[: len(parts)], _counts(len(shuffled), parts), strict=True):
        splits[split] = shuffled[start : start + count]
        start += count
    return splits


def take(records: Sequence[Record], limit: int | None) -> list[Record]:
    """Return the first `limit` records, or all of them."""
    return list(records[:limit])


def _counts(total: int, parts: Sequence[int]) -> list[int]:
    """Divide by largest remainder: what whole shares leave goes to the largest fractions, ties to the earlier part."""
    whole = sum(parts)
    counts = [total * part // whole for part in parts]
    by_fraction = sorted(range(len(parts)), key=lambda index: -(total * parts[index] % whole))
    for index in by_fraction[: total - sum(counts)]:
        counts[index] += 1
    return counts
