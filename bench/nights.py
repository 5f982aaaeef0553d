"""Simulations of nights: the false alarm rate, and the delay until a decline is detected."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from statistics import median

from bench import tables
from skillopt_airflow.core.gate.night_verdict import NightMean, NightVerdict, decide_nights
from skillopt_airflow.core.gate.paired import score_interval

ALPHA = 0.05
MONTH = 30
SEED = 42
SIZES = (20, 50, 200)
MONTHS = 500
"""Simulated months per kind."""
DECLINES = 25
"""Simulated declines per kind."""
MAX_DELAY = 90
"""Simulated nights after a drop."""
GOOD = (1, 30, 180)
DROPS = (0.05, 0.1, 0.2)
ODD = 1 / 17
"""Share of bad nights if night effects are skewed."""
GAIN = 0.02
"""Mean gain of a champion that is better than the previous one."""
LEVEL, PROMISING = 0.6, (10, 50, 250)
"""A stable champion's rate of right answers, and the numbers of held-out items of its published score."""
SHRINKING = ((1000, 10), (200, 20))
"""Items per night, in the first 60 nights and afterwards."""


@dataclass(frozen=True)
class Kind:
    """A distribution of nights on which the champion equals the previous one in the mean."""

    name: str
    differing: float | None
    """Share of items where only one skill is right; None for graded scores."""
    shared: float
    """Intraclass correlation of a night's items."""
    skewed: bool = False
    """Few bad nights and many slightly good ones, instead of normal night effects."""

    def night(self, random: Random, size: int, mean: float = 0.0) -> NightMean:
        """Draw a night of `size` items with its own effect."""
        variance = 0.04 if self.differing is None else self.differing
        spread = math.sqrt(variance * self.shared / (1 - self.shared))
        if self.skewed:
            mean += -4 * spread if random.random() < ODD else spread / 4
        else:
            mean += random.gauss(0, spread)
        values = [self._item(random, max(-1.0, min(1.0, mean))) for _ in range(size)]
        average = math.fsum(values) / size
        return NightMean(mean=average, variance=math.fsum((one - average) ** 2 for one in values) / size, count=size)

    def _item(self, random: Random, mean: float) -> float:
        if self.differing is None:
            return random.gauss(mean, 0.2)
        differing, draw = max(self.differing, abs(mean)), random.random()
        return 0.0 if draw >= differing else 1.0 if draw < (differing + mean) / 2 else -1.0


def night_of_answers(random: Random, size: int, shared: float, promise: float) -> NightMean:
    """Draw a night of answers with mean rate LEVEL, minus the published score."""
    effect = random.gauss(0, math.sqrt(LEVEL * (1 - LEVEL) * shared))
    rate = max(0.0, min(1.0, LEVEL + effect))
    found = sum(random.random() < rate for _ in range(size)) / size
    return NightMean(mean=found - promise, variance=found * (1 - found), count=size)


KINDS = (
    Kind("hard", 0.3, 0.0),
    Kind("hard", 0.3, 0.1),
    Kind("hard, a bad night in 17", 0.3, 0.1, skewed=True),
    Kind("hard, the skills differ on 2 % of the items", 0.02, 0.0),
    Kind("hard, the skills differ on 2 % of the items", 0.02, 0.1),
    Kind("soft", None, 0.0),
    Kind("soft", None, 0.1),
    Kind("soft, a bad night in 17", None, 0.1, skewed=True),
)
MONTHS_NOTE = (
    f"Share of months of {MONTH} nights with a false claim about a champion, at alpha {ALPHA}: {MONTHS} simulated "
    "months a cell, with the project's own verdict. `worse_than_seed` is the test of `regressed` against the seed"
    " skill instead of the champion before. `below_published` is claimed of a champion that is as good as when it"
    " was published, by held-out items that decided nothing. For `healthy` the share of nights counts, on which "
    "it is claimed of a champion that is as good as the seed skill. ICC is the share of the items' variance that "
    "the items of a night share. Differences of hard scores are -1, 0 and 1, on 30 % of the items unless a row "
    "says otherwise; those of soft scores have a standard deviation of 20 points. Nights vary normally, or by one"
    " bad night in 17 that loses 16 times what the others gain."
)
DELAYS_NOTE = (
    "Median number of nights until a champion is demoted that became worse than the one before it, by points of hard "
    f"scores, after nights on which it was as good; at alpha {ALPHA}, with the project's own verdict. {DECLINES} "
    "simulated declines a cell, on items of which the skills differ on 30 %. ICC is the share of the items' variance "
    "that the items of a night share."
)


def false_demotions(kind: Kind, size: int, gain: float = 0.0, months: int = MONTHS) -> float:
    """Return the share of months that demote a champion without a decline."""
    random = Random(f"{SEED}, {kind}, {size}, {gain}")  # noqa: S311
    return sum(_demoted(random, kind, size, 0, -gain, MONTH) is not None for _ in range(months)) / months


def false_drifts(shared: float, published: int, size: int, months: int = MONTHS) -> float:
    """Return the share of months with a drift verdict on a stable champion."""
    random = Random(f"{SEED}, drift, {shared}, {published}, {size}")  # noqa: S311
    return sum(_drifts(random, shared, published, size) for _ in range(months)) / months


def false_alarms_of_fewer_items(before: int, after: int, months: int = MONTHS) -> float:
    """Return the share of months with a demotion after 60 nights with more items."""
    random, kind, alarms = Random(f"{SEED}, fewer, {before}, {after}"), KINDS[0], 0  # noqa: S311
    for _ in range(months):
        nights = [kind.night(random, before) for _ in range(60)]
        for _ in range(MONTH):
            nights.append(kind.night(random, after))
            if decide_nights([], nights, None, ALPHA).verdict is NightVerdict.REGRESSED:
                alarms += 1
                break
    return alarms / months


def false_keeps(kind: Kind, size: int, months: int = MONTHS) -> float:
    """Return the share of nights that keep a champion that only equals the seed skill."""
    random, kept = Random(f"{SEED}, keep, {kind}, {size}"), 0  # noqa: S311
    for _ in range(months):
        nights = [kind.night(random, size) for _ in range(MONTH)]
        kept += sum(
            decide_nights(nights[:last], None, None, ALPHA).verdict is NightVerdict.HEALTHY
            for last in range(1, MONTH + 1)
        )
    return kept / (months * MONTH)


def delay(kind: Kind, size: int, good: int, drop: float, declines: int = DECLINES) -> float:
    """Return the median number of nights from a drop to the demotion; infinity if more than MAX_DELAY."""
    random = Random(f"{SEED}, {kind}, {size}, {good}, {drop}")  # noqa: S311
    delays = (_demoted(random, kind, size, good, drop, MAX_DELAY) for _ in range(declines))
    return median(math.inf if nights is None else nights for nights in delays)


def measure() -> None:
    """Write `results/nights.md` and `results/night_delays.md`."""
    sizes = [f"{size} items a night" for size in SIZES]
    rows: list[Sequence[object]] = [
        (claim, name, shared, *(f"{share(size):.1%}" for size in SIZES)) for claim, name, shared, share in _claims()
    ]
    rows += [
        (
            "demote, as good as the one before",
            f"hard, {before} items a night, then {after}",
            0.0,
            f"{share:.1%}",
            "",
            "",
        )
        for before, after in SHRINKING
        for share in [false_alarms_of_fewer_items(before, after, MONTHS // 5)]
    ]
    tables.write("nights", "False alarms", MONTHS_NOTE, ("claim", "scores", "ICC", *sizes), rows)
    rows = [
        (
            kind.shared,
            good,
            f"{drop:.0%}".replace("%", " points"),
            *(_shown(delay(kind, size, good, drop)) for size in SIZES),
        )
        for kind in KINDS[:2]
        for good in GOOD
        for drop in DROPS
    ]
    tables.write(
        "night_delays", "Nights until a decline is seen", DELAYS_NOTE, ("ICC", "good nights", "drop", *sizes), rows
    )


def _claims() -> Iterator[tuple[str, str, float, Callable[[int], float]]]:
    """Yield rows: the false claim, the scores, the correlation, and the rate by items per night."""
    for kind in KINDS:
        yield "demote, as good as the one before", kind.name, kind.shared, partial(false_demotions, kind)
    for kind in KINDS[:2]:
        better = partial(false_demotions, kind, gain=GAIN)
        yield f"demote, {100 * GAIN:g} points better", kind.name, kind.shared, better
    for kind in KINDS[:2]:
        yield "keep, as good as the seed skill", kind.name, kind.shared, partial(false_keeps, kind)
    for shared in (0.0, 0.1):
        for published in PROMISING:
            scores = f"hard, published by {published} items"
            yield "drift, as good as published", scores, shared, partial(false_drifts, shared, published)


def _drifts(random: Random, shared: float, published: int, size: int) -> bool:
    promise, _ = score_interval([[float(random.random() < LEVEL)] for _ in range(published)])
    nights: list[NightMean] = []
    for _ in range(MONTH):
        nights.append(night_of_answers(random, size, shared, promise))
        if decide_nights([], None, nights, ALPHA).verdict is NightVerdict.BELOW_PUBLISHED:
            return True
    return False


def _demoted(random: Random, kind: Kind, size: int, good: int, drop: float, most: int) -> int | None:
    nights = [kind.night(random, size) for _ in range(good)]
    for after in range(1, most + 1):
        nights.append(kind.night(random, size, -drop))
        if decide_nights([], nights, None, ALPHA).verdict is NightVerdict.REGRESSED:
            return after
    return None


def _shown(nights: float) -> str:
    return f"{nights:.0f}" if math.isfinite(nights) else f"more than {MAX_DELAY}"
