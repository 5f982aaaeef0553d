"""Dividing records into splits, deterministically, by ratio and seed or by a list of ids."""

import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import accumulate
from typing import TypeVar

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import ALL_DATA_SPLITS, DATA_SPLITS, JsonObject, Split
from skillopt_airflow.tasks.record_fields import UnreadableRecord

Record = TypeVar("Record")


def split_by_ratio(
    records: Sequence[Record], ratio: str, seed: int, groups: Sequence[str] = ()
) -> dict[Split, list[Record]]:
    """Shuffle by seed and divide into train, val, test and, if the ratio has four parts, publish.

    Groups stay whole, because a skill selected on some items of a group must not be tested on the others. A group goes
    to the split that its middle falls into, so a split's size is off by at most half a group at each end. `groups` has
    the group of each record, empty for a record without; it is empty if no record has one.
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
    """Return the records by group, in the order of first appearance; a record without a group forms its own."""
    found: dict[object, list[Record]] = {}
    for place, record in enumerate(records):
        group = groups[place] if groups else ""
        found.setdefault(group if group else place, []).append(record)
    return list(found.values())


def split_counts(total: int, parts: Sequence[int]) -> list[int]:
    """Return the size of each part by the largest remainder method; the larger part wins ties.

    Floating point decides on ties, as in SkillOpt's `skillopt/datasets/base.py`, so the same seed gives the same splits
    there and here. With exact fractions, 2:1:7 gives other splits for 10% of the sizes.
    """
    shares = [total * part / sum(parts) for part in parts]
    counts = [int(share) for share in shares]
    order = sorted(range(len(parts)), key=lambda place: (shares[place] - counts[place], parts[place]), reverse=True)
    for place in order[: total - sum(counts)]:
        counts[place] += 1
    return counts


NAMED = 5
"""Ids that an error lists per problem."""


def split_by_list(
    records: Sequence[JsonObject], ids: Sequence[str], listed: Mapping[Split, Sequence[str]]
) -> dict[Split, list[JsonObject]]:
    """Return the listed records by split; raise DataError for missing or unknown splits, and unknown or repeated ids.

    A record without an id is listed by its `place_id` and counts as unreadable. An unknown id may have `:` instead of
    `-`: SkillOpt lists LiveMathematicianBench's 202602-22 as 202602:22.
    """
    absent = [*(f"no split {split}" for split in DATA_SPLITS if not listed.get(split))]
    absent += [f"an unknown split {split}" for split in listed if split not in ALL_DATA_SPLITS]
    if absent:
        raise DataError(f"it has {', '.join(absent)}; expected the splits train, val and test, and maybe publish")
    by_id = dict(zip(reversed(ids), reversed(records), strict=True))
    by_place: dict[str, JsonObject] = {
        place_id(split, row): UnreadableRecord("this record had no id when the split was made")
        for split, wanted in listed.items()
        for row in range(1, len(wanted) + 1)
    }
    found = by_place | by_id
    spelled = {name: name.replace(":", "-") for wanted in listed.values() for name in wanted if name not in found}
    listed = {
        split: [spelled[name] if spelled.get(name) in found else name for name in wanted]
        for split, wanted in listed.items()
    }
    named = Counter(name for wanted in listed.values() for name in wanted)
    there = Counter(ids)
    flaws = {
        "listed more than once": [name for name, count in named.items() if count > 1],
        "that no record has": [name for name in named if name not in found or not name],
        "that several records have": _repeated(named, there, set(by_place) - set(by_id)),
    }
    problems = [f"ids {flaw}: {_shown(names)}" for flaw, names in flaws.items() if names]
    if problems:
        raise DataError("; ".join(problems))
    return {split: [found[name] for name in wanted] for split, wanted in listed.items()}


def _repeated(named: Collection[str], there: Mapping[str, int], places: Collection[str]) -> list[str]:
    """Return the ids that several records have, unless the list has a `place_id` per repeat, as a run's own does."""
    several = [name for name in named if there[name] > 1]
    repeats = sum(there[name] - 1 for name in several)
    return [] if repeats <= sum(name in places for name in named) else several


def place_id(split: str, row: int) -> str:
    """Return the id of an item whose record has no id, by its row (1-based)."""
    return f"{split}-row-{row}"


def _shown(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return f"{', '.join(names[:NAMED])}{more}"
