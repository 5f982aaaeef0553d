"""The verdict on a deployed skill from nights on fresh items, by tests that allow looking every night.

The evidence is a CUSUM chart for a decline and Student's t test for a gain. The items of a night share its mood, so
they are not independent: a night is one observation, its mean.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from statistics import fmean, pvariance, stdev
from typing import NamedTuple, Self

from pydantic import AwareDatetime, Field

from skillopt_airflow.core.gate.item_scores import Metric, members
from skillopt_airflow.core.values.types import Value

MEMORY = 90
"""Nights after which a night is forgotten."""
RECENT = 30
"""Nights that a gain must show in."""
SLACK = 0.25
"""Standard deviations of a night by which the mean may be below 0 without adding to the chart."""
LIMIT = 2.5
"""Standard deviations that a night which lies further out counts as, so that a single odd night says little."""
ALARM, ALARM_ALPHA = 9.4, 0.05
"""Height of the chart that a champion which did not decline reaches within 30 nights with this chance at most; found by
simulation, see `python -m bench nights`."""
PRIOR_NIGHTS = 2
"""Nights that what the items say about the variance counts as."""
SHARED = 0.1
"""Share of the items' variance that the items of a night are taken to share, where only they are known."""
SMALLEST_VARIANCE = 1e-4
"""Variance of items that never differed."""


class NightMean(Value):
    """A champion's score in a night less another one, as a mean over the items."""

    mean: float
    variance: float = Field(ge=0.0)
    """Of the items."""
    count: int = Field(ge=1)
    """Items, or groups of items, that the mean rests on."""

    @classmethod
    def of(cls, values: Mapping[str, float], groups: Mapping[str, str]) -> Self:
        """Summarize the values of a night's items, of which there is at least one."""
        return cls(
            mean=math.fsum(values.values()) / len(values),
            variance=pvariance(values.values()),
            count=len(members(values, groups)),
        )

    @property
    def scale(self) -> float:
        """Variance of the mean in units of that of the items, if they share what they are taken to share."""
        return SHARED + (1 - SHARED) / self.count

    @property
    def error(self) -> float:
        """Standard error of the mean by the items of this night alone, as if they were independent."""
        return math.sqrt(self.variance / self.count)


def decline(nights: Sequence[NightMean]) -> float:
    """Return the height of a one-sided CUSUM chart (Page 1954) of means below 0; the nights are in order of arrival.

    Each night adds how many of its standard deviations its mean is below 0, less SLACK; the chart never falls below 0.
    """
    kept, height = nights[-MEMORY:], 0.0
    for night, deviation in zip(kept, _deviations(kept), strict=True):
        below = max(-LIMIT, min(LIMIT, -night.mean / deviation))
        height = max(0.0, height + below - SLACK)
    return height


def alarm_height(alpha: float) -> float:
    """Return the height that a champion which did not decline reaches in 30 nights with a chance of alpha at most.

    The chance falls with the height h as exp(-2 SLACK h) (Siegmund 1985, chapter 2).
    """
    return ALARM + math.log(ALARM_ALPHA / alpha) / (2 * SLACK)


def gain(nights: Sequence[NightMean], recent: int = RECENT) -> float | None:
    """Return the p-value of a one-sided t test that the mean of the last nights is above 0; None below two nights.

    Their standard error is at least that of their items.
    """
    from scipy.special import stdtr

    kept = nights[max(0, len(nights) - recent) :]
    if len(kept) < 2:
        return None
    of_items = math.sqrt(math.fsum(night.error**2 for night in kept)) / len(kept)
    error = max(stdev(night.mean for night in kept) / math.sqrt(len(kept)), of_items)
    mean = fmean(night.mean for night in kept)
    if error == 0:
        return 0.0 if mean > 0 else 1.0
    return float(stdtr(len(kept) - 1, -mean / error))


def _deviations(nights: Sequence[NightMean]) -> Iterator[float]:
    """Yield the standard deviation of each night's mean, by the nights before it and by its own items."""
    squares = product = weight = variances = 0.0
    for place, night in enumerate(nights):
        variances += night.variance
        prior = max(variances / (place + 1), SMALLEST_VARIANCE)
        around = max(0.0, squares - product * product / weight) if place else 0.0
        variance = (PRIOR_NIGHTS * prior + around) / (PRIOR_NIGHTS + max(0, place - 1))
        yield max(math.sqrt(variance * night.scale), night.error)
        # In units in which the mean of each night has the same variance.
        one = 1 / math.sqrt(night.scale)
        height = night.mean * one
        squares, product, weight = squares + height * height, product + height * one, weight + one * one


class NightVerdict(StrEnum):
    """The verdict on the champion after a night."""

    KEEP = "keep"
    """It is better than the seed skill."""
    WATCH = "watch"
    """Nothing is certain."""
    DEMOTE = "demote"
    """It became worse than the champion before it."""
    STALE = "stale"
    """It became worse than the seed skill, so it does harm."""
    DRIFT = "drift"
    """It scores below what was published with it, and no rival is better: look at the data and the model."""


class Judgement(Value):
    """A verdict and the evidence for it; None where there is nothing to compare."""

    verdict: NightVerdict
    reason: str
    gain_on_seed: float | None
    """p-value of the last nights, see `gain`; at most alpha of a champion that is better."""
    decline_to_seed: float
    """Height of the chart, see `decline`, as the other declines; it reaches the alarm of a champion that declined."""
    decline_to_previous: float | None
    decline_to_promise: float | None
    alarm: float
    alpha: float


def judge_nights(
    against_seed: Sequence[NightMean],
    against_previous: Sequence[NightMean] | None,
    against_promise: Sequence[NightMean] | None,
    alpha: float,
    recent: int = RECENT,
) -> Judgement:
    """Return the verdict after the last of the nights, which are in the order of their arrival.

    Each decline is claimed falsely within 30 nights with a chance of at most alpha. A decline may begin on any night.
    A gain on the seed is claimed falsely on a share of at most alpha of the nights.

    Args:
        against_seed: the champion's score less the seed's.
        against_previous: less that of the champion before it; None without one.
        against_promise: less what was promised; None if nothing was.
        alpha: `regate.alpha`.
        recent: how many of the last nights against the seed count for a gain.
    """
    better, alarm = gain(against_seed, recent), alarm_height(alpha)
    to_seed = decline(against_seed)
    to_previous = None if against_previous is None else decline(against_previous)
    to_promise = None if against_promise is None else decline(against_promise)
    claims = (
        _Claim(NightVerdict.DEMOTE, "worse than the champion before it", to_previous),
        _Claim(NightVerdict.STALE, "worse than the seed skill", to_seed),
        _Claim(NightVerdict.DRIFT, "below its published score, and no rival is better", to_promise),
    )
    claim = next((one for one in claims if one.height is not None and one.height >= alarm), None)
    nights = min(len(against_seed), recent)
    if claim is not None:
        verdict, reason = claim.verdict, f"{claim.what}, CUSUM {claim.height:.1f}, at least {alarm:.1f}"
    elif better is not None and better <= alpha:
        verdict, reason = NightVerdict.KEEP, f"better than the seed skill, p = {better:.2g} over {nights} nights"
    else:
        p = "no two nights yet" if better is None else f"p = {better:.2g} over {nights} nights, above {alpha:g}"
        verdict, reason = NightVerdict.WATCH, f"nothing certain: better than the seed skill, {p}"
    return Judgement(
        verdict=verdict,
        reason=reason,
        gain_on_seed=better,
        decline_to_seed=to_seed,
        decline_to_previous=to_previous,
        decline_to_promise=to_promise,
        alarm=alarm,
        alpha=alpha,
    )


class _Claim(NamedTuple):
    """A decline of the champion, and the height of its chart; None where there is nothing to compare."""

    verdict: NightVerdict
    what: str
    height: float | None


class NightPoint(Value):
    """A night without its items."""

    date: str
    """YYYY-MM-DD, of the items."""
    run: str
    champion: str
    """Version that it measured."""
    previous: str | None
    """Version of the champion before; None if there was none, or it was the seed."""
    items: int
    metric: Metric
    scores: dict[str, float]
    """Means by role: champion, seed, previous."""
    intervals: dict[str, tuple[float, float]]
    """95 % interval of each mean by role; empty in a night that was stored without them."""
    judgement: Judgement
    settled: AwareDatetime
    """UTC."""

    @property
    def decline(self) -> float:
        """The highest of the charts of a decline; the judgement's alarm is their limit."""
        judged = self.judgement
        known = (judged.decline_to_seed, judged.decline_to_previous, judged.decline_to_promise)
        return max(evidence for evidence in known if evidence is not None)
