"""Cutting records into splits: the same records, groups, ratio and seed always give the same splits."""

import random
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import TypeVar

from skillopt_airflow.core.types import ALL_DATA_SPLITS, Split

Record = TypeVar("Record")


def split_by_ratio(
    records: Sequence[Record], ratio: str, seed: int, groups: Sequence[str] = ()
) -> dict[Split, list[Record]]:
    """Shuffle by seed and cut into train, val, test and, if the ratio has four parts, publish.

    A group is not cut: what was selected on some of its items would be tested on the others. So it lies where its
    middle falls, and a split is off its share by half a group at each end.

    Args:
        records: all of them, in the file's order.
        ratio: parts of train, val and test, such as `2:1:7`, and of publish, such as `2:1:5:2`.
        seed: seed of the shuffle.
        groups: that of each record, empty for one without; none for records that have none.
    """
    shuffled = _groups(records, groups)
    random.Random(seed).shuffle(shuffled)  # noqa: S311
    parts = [int(part) for part in ratio.split(":")]
    names = ALL_DATA_SPLITS[: len(parts)]
    ends = list(accumulate(_counts(len(records), parts)))
    splits: dict[Split, list[Record]] = {split: [] for split in names}
    start = 0
    for group in shuffled:
        middle = start + (len(group) - 1) / 2
        splits[names[bisect_right(ends, middle)]] += group
        start += len(group)
    return splits


def _groups(records: Sequence[Record], groups: Sequence[str]) -> list[list[Record]]:
    """Return the records by group, in the order in which the groups begin; one without is alone."""
    found: dict[object, list[Record]] = {}
    for place, record in enumerate(records):
        group = groups[place] if groups else ""
        found.setdefault(group if group else place, []).append(record)
    return list(found.values())


def _counts(total: int, parts: Sequence[int]) -> list[int]:
    """Divide by largest remainder: what whole shares leave goes to the largest fractions, ties to the earlier part."""
    whole = sum(parts)
    counts = [total * part // whole for part in parts]
    by_fraction = sorted(range(len(parts)), key=lambda index: -(total * parts[index] % whole))
    for index in by_fraction[: total - sum(counts)]:
        counts[index] += 1
    return counts
