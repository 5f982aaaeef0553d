"""The verdict on a deployed skill from nights on fresh items, by tests that remain valid when repeated every night.

A CUSUM chart detects a decline, and Student's t test a gain. Items from the same night are correlated, so each night
counts as one observation, its mean.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from statistics import fmean, pvariance, stdev
from typing import Self

from pydantic import AwareDatetime, Field

from skillopt_airflow.core.gate.item_scores import Metric, group_values
from skillopt_airflow.core.values.types import Value

MEMORY = 90
"""Number of nights that the chart uses."""
RECENT = 30
"""Number of nights for the test of a gain."""
SLACK = 0.25
"""Allowance of the chart in standard deviations of a night's mean."""
LIMIT = 2.5
"""Limit of a night's deviation in standard deviations, so a single outlier has little effect."""
ALARM, ALARM_ALPHA = 9.4, 0.05
"""Height of the alarm, and the probability that a champion without a decline reaches it within 30 nights; from a
simulation, see `python -m bench nights`."""
PRIOR_NIGHTS = 2
"""Weight, in nights, of the variance estimate from the items."""
SHARED = 0.1
"""Assumed share of the items' variance that the items of a night have in common."""
SMALLEST_VARIANCE = 1e-4
"""Minimum variance of items, for items that never differ."""


class NightMean(Value):
    """The mean over a night's items of the champion's score minus another score."""

    mean: float
    variance: float = Field(ge=0.0)
    count: int = Field(ge=1)
    """Number of items or groups of items."""

    @classmethod
    def of(cls, values: Mapping[str, float], groups: Mapping[str, str]) -> Self:
        """Summarize the values of at least one item."""
        return cls(
            mean=fmean(values.values()),
            variance=pvariance(values.values()),
            count=len(group_values(values, groups)),
        )

    @property
    def scale(self) -> float:
        """Variance of the mean relative to that of the items, with the assumed shared variance."""
        return SHARED + (1 - SHARED) / self.count

    @property
    def error(self) -> float:
        """Standard error of the mean if the items of this night were independent."""
        return math.sqrt(self.variance / self.count)


def decline(nights: Sequence[NightMean]) -> float:
    """Return the height of a one-sided CUSUM chart (Page 1954) for means below 0; nights are in order of arrival.

    Each night adds the distance of its mean below 0 in standard deviations, minus SLACK; the chart never falls below 0.
    """
    used, height = nights[-MEMORY:], 0.0
    for night, deviation in zip(used, _deviations(used), strict=True):
        below = max(-LIMIT, min(LIMIT, -night.mean / deviation))
        height = max(0.0, height + below - SLACK)
    return height


def alarm_height(alpha: float) -> float:
    """Return the height that a champion without a decline reaches in 30 nights with a probability of at most alpha.

    The probability falls with the height h as exp(-2 SLACK h) (Siegmund 1985, chapter 2).
    """
    return ALARM + math.log(ALARM_ALPHA / alpha) / (2 * SLACK)


def gain(nights: Sequence[NightMean], recent: int = RECENT) -> float | None:
    """Return the p-value of a one-sided t test that the mean of the last nights is above 0; None for less than two.

    The standard error is at least that of the items.
    """
    from scipy.special import stdtr

    used = nights[max(0, len(nights) - recent) :]
    if len(used) < 2:
        return None
    of_items = math.sqrt(math.fsum(night.error**2 for night in used)) / len(used)
    error = max(stdev(night.mean for night in used) / math.sqrt(len(used)), of_items)
    mean = fmean(night.mean for night in used)
    if error == 0:
        return 0.0 if mean > 0 else 1.0
    return float(stdtr(len(used) - 1, -mean / error))


def _deviations(nights: Sequence[NightMean]) -> Iterator[float]:
    """Yield the standard deviation of each night's mean, estimated from earlier nights and its own items."""
    squares = product = weight = variances = 0.0
    for place, night in enumerate(nights):
        variances += night.variance
        prior = max(variances / (place + 1), SMALLEST_VARIANCE)
        around = max(0.0, squares - product * product / weight) if place else 0.0
        variance = (PRIOR_NIGHTS * prior + around) / (PRIOR_NIGHTS + max(0, place - 1))
        yield max(math.sqrt(variance * night.scale), night.error)
        # Scaled so that the mean of each night has the same variance.
        one = 1 / math.sqrt(night.scale)
        height = night.mean * one
        squares, product, weight = squares + height * height, product + height * one, weight + one * one


class NightVerdict(StrEnum):
    """The verdict on the champion after a night."""

    HEALTHY = "healthy"
    """Better than the seed skill."""
    INCONCLUSIVE = "inconclusive"
    REGRESSED = "regressed"
    """Now worse than the previous champion."""
    WORSE_THAN_SEED = "worse_than_seed"
    """Now worse than the seed skill, so it does harm."""
    BELOW_PUBLISHED = "below_published"
    """Below its published score, and no rival is better: check the data and the model."""


class NightDecision(Value):
    """A verdict and its evidence; None if there is nothing to compare."""

    verdict: NightVerdict
    reason: str
    gain_on_seed: float | None
    """p-value of the last nights, see `gain`; at most alpha if the champion is better."""
    decline_to_seed: float
    """Height of the chart, see `decline`, like the other declines; at least `alarm` after a decline."""
    decline_to_previous: float | None
    decline_to_promise: float | None
    alarm: float
    alpha: float


def decide_nights(
    against_seed: Sequence[NightMean],
    against_previous: Sequence[NightMean] | None,
    against_promise: Sequence[NightMean] | None,
    alpha: float,
    recent: int = RECENT,
) -> NightDecision:
    """Return the verdict after the last night; nights are in order of arrival.

    The false positive rate of each decline is at most alpha per 30 nights, on whichever night a decline begins. That of
    a gain over the seed is at most alpha per night. The means are the champion's score minus the seed's, the previous
    champion's and the published score. `recent` is the number of the last nights for the test of a gain.
    """
    better, alarm, to_seed = gain(against_seed, recent), alarm_height(alpha), decline(against_seed)
    to_previous = None if against_previous is None else decline(against_previous)
    to_promise = None if against_promise is None else decline(against_promise)
    charts = (
        (NightVerdict.REGRESSED, "worse than the previous champion", to_previous),
        (NightVerdict.WORSE_THAN_SEED, "worse than the seed skill", to_seed),
        (NightVerdict.BELOW_PUBLISHED, "below its published score, and no rival is better", to_promise),
    )
    alarms = [chart for chart in charts if chart[2] is not None and chart[2] >= alarm]
    nights = min(len(against_seed), recent)
    if alarms:
        verdict, what, height = alarms[0]
        reason = f"{what}, CUSUM {height:.1f}, at least {alarm:.1f}"
    elif better is not None and better <= alpha:
        verdict, reason = NightVerdict.HEALTHY, f"better than the seed skill, p = {better:.2g} over {nights} nights"
    else:
        p = "no two nights yet" if better is None else f"p = {better:.2g} over {nights} nights, above {alpha:g}"
        verdict, reason = NightVerdict.INCONCLUSIVE, f"nothing certain: better than the seed skill, {p}"
    return NightDecision(
        verdict=verdict,
        reason=reason,
        gain_on_seed=better,
        decline_to_seed=to_seed,
        decline_to_previous=to_previous,
        decline_to_promise=to_promise,
        alarm=alarm,
        alpha=alpha,
    )


class NightPoint(Value):
    """A night without its items."""

    date: str
    """YYYY-MM-DD, of the items."""
    run: str
    champion: str
    previous: str | None
    """Version of the previous champion; None if there was none, or it was the seed."""
    items: int
    metric: Metric
    scores: dict[str, float]
    """Means by role: champion, seed, previous."""
    intervals: dict[str, tuple[float, float]]
    """95% confidence intervals of the means by role; may be empty."""
    judgement: NightDecision
    settled: AwareDatetime
    """UTC."""

    @property
    def decline(self) -> float:
        """The height of the highest chart; the judgement's alarm is their limit."""
        evidence = self.judgement
        heights = (evidence.decline_to_seed, evidence.decline_to_previous, evidence.decline_to_promise)
        return max(height for height in heights if height is not None)
