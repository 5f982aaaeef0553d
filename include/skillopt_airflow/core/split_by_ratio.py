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
    ends = list(accumulate(split_counts(len(records), parts)))
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


def split_counts(total: int, parts: Sequence[int]) -> list[int]:
    """Return the size of each part by the largest remainder; of equal remainders, the larger part comes first.

    Floating point is on purpose: it decides which remainders are equal, as in SkillOpt's `skillopt/datasets/base.py`,
    so that the same seed gives the same splits. In exact fractions, 2:1:7 differs for one size in ten.
    """
    shares = [total * part / sum(parts) for part in parts]
    counts = [int(share) for share in shares]
    order = sorted(range(len(parts)), key=lambda place: (shares[place] - counts[place], parts[place]), reverse=True)
    for place in order[: total - sum(counts)]:
        counts[place] += 1
    return counts
