"""Evidence from a champion's nights: a CUSUM chart for a decline, Student's t test for a gain.

The items of a night share its mood, so they are not independent: a night is one observation, its mean.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean, pvariance, stdev
from typing import Self

from pydantic import Field

from skillopt_airflow.core.groups import members
from skillopt_airflow.core.types import Value

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
