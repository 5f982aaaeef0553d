"""Items that share something, such as a document, are one observation: their scores are not independent."""

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from types import MappingProxyType

NO_GROUPS: Mapping[str, str] = MappingProxyType({})


def count_groups(groups: Sequence[str]) -> int | None:
    """Count the groups of items by each one's group, empty for an item of its own; None if none has one."""
    return len(group_sizes(groups)) if any(groups) else None


def group_sizes(groups: Sequence[str]) -> tuple[int, ...]:
    """Return the number of items in each group, by each item's; an item without one is one of its own."""
    return (*Counter(group for group in groups if group).values(), *[1] * groups.count(""))


def members(items: Mapping[str, float], groups: Mapping[str, str]) -> list[list[float]]:
    """Return the items' values group by group; an item without a group is one of its own."""
    found: defaultdict[tuple[str, str], list[float]] = defaultdict(list)
    for item, value in sorted(items.items()):
        group = groups.get(item, "")
        found[("group", group) if group else ("item", item)].append(value)
    return list(found.values())


def sums(items: Mapping[str, float], groups: Mapping[str, str]) -> list[float]:
    """Return the sum of each group's values; their sum is that of the items."""
    return [math.fsum(values) for values in members(items, groups)]
