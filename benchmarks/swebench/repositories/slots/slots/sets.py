"""Several intervals."""

from collections.abc import Iterable

from slots.interval import Interval


def merged(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the same points in as few intervals as possible, in order; those that touch become one, empty ones go."""
    result: list[Interval] = []
    for interval in sorted(one for one in intervals if len(one)):
        if result and interval.start <= result[-1].end:
            result[-1] = Interval(result[-1].start, max(result[-1].end, interval.end))
        else:
            result.append(interval)
    return result


def gaps(intervals: Iterable[Interval], within: Interval) -> list[Interval]:
    """Return what of an interval the others leave free."""
    free: list[Interval] = []
    start = within.start
    for interval in merged(intervals):
        if start < min(interval.start, within.end):
            free.append(Interval(start, min(interval.start, within.end)))
        start = max(start, interval.end)
    if start < within.end:
        free.append(Interval(start, within.end))
    return free


def first_free(intervals: Iterable[Interval], within: Interval, length: int = 1) -> Interval | None:
    """Return the first free interval of this length; None if there is none."""
    for gap in gaps(intervals, within):
        if len(gap) >= length:
            return Interval(gap.start, gap.start + length)
    return None
