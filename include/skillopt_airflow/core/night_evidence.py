"""Evidence from nights, each of which is one observation: that a mean is below 0 from some night on, or above 0.

The items of a night share its mood, so that they are not independent; the nights' means are compared with how much
these vary. Assumed is that the nights of a champion vary alike around one mean, until it changes. Their means are
taken as normal; one that lies far out counts as LIMIT standard deviations, so that a single odd night says little.

With the right Haar prior on the scale the ratio of the likelihoods, of a mean on one side to a mean of 0, is an E-value
whatever the nights' variance is (Wang and Ramdas 2023, arXiv:2310.03722). The nights before help to know the variance,
and so do the items of a night: they are taken for PRIOR_NIGHTS more nights, of which SHARED of the variance is shared.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from operator import mul
from statistics import pvariance
from typing import NamedTuple, Self

from pydantic import Field

from skillopt_airflow.core.betting import log_evidence, log_sum
from skillopt_airflow.core.groups import members
from skillopt_airflow.core.paired import PairedTable
from skillopt_airflow.core.t_quantile import probability_below
from skillopt_airflow.core.types import Value

MEMORY = 90
"""Nights after which a night is forgotten."""
RECENT = 30
"""Nights that a gain must show in."""
LIMIT = 2.5
"""Standard deviations that a night which lies further out counts as."""
PRIOR_NIGHTS = 2
"""Nights that what the items say about the variance counts as."""
SHARED = 0.1
"""Share of the items' variance that the items of a night are taken to share, where only they are known."""
SMALLEST_VARIANCE = 1e-4
"""Variance of items that never differed."""
EFFECTS = (0.1, 1.0)
"""Variances of the mean, half normal, in units of that of the items: small changes, and large ones."""
NONE = 1e-9
"""Evidence when nothing speaks for a claim."""


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

    @classmethod
    def of_table(cls, table: PairedTable) -> Self:
        """Return what was found, from a table that tells wins and losses alone; graded scores vary less than that."""
        spread = (table.wins + table.losses) / table.pairs - table.delta**2
        return cls(mean=table.delta, variance=max(0.0, spread), count=table.groups or table.pairs)

    @property
    def reversed(self) -> "NightMean":
        """Return the same with the sides changed."""
        return self.model_copy(update={"mean": -self.mean})

    @property
    def scale(self) -> float:
        """Variance of the mean in units of that of the items, if they share what they are taken to share."""
        return SHARED + (1 - SHARED) / self.count


class _Start(NamedTuple):
    """A night from which on the mean may be above 0, with what is known of the variance without the nights since."""

    place: int
    squares: float
    """Sum of the squares of so many deviations."""
    deviations: int


class _Series:
    """The nights that are remembered, in units in which the mean of each has the same variance."""

    def __init__(self, nights: Sequence[NightMean]) -> None:
        kept = nights[-MEMORY:]
        self.weights = [1 / math.sqrt(night.scale) for night in kept]
        self.heights = [night.mean * weight for night, weight in zip(kept, self.weights, strict=True)]
        items = math.fsum(night.variance for night in kept) / len(kept) if kept else 0.0
        self._prior = PRIOR_NIGHTS * max(items, SMALLEST_VARIANCE)

    def starts(self) -> Iterator[_Start]:
        """Yield each night; those before it vary around a mean of their own."""
        squares = product = weight = 0.0
        for place, (height, one) in enumerate(zip(self.heights, self.weights, strict=True)):
            around = max(0.0, squares - product * product / weight) if place else 0.0
            yield _Start(place, self._prior + around, PRIOR_NIGHTS + max(0, place - 1))
            squares, product, weight = squares + height * height, product + height * one, weight + one * one

    def log_e_value(self, start: _Start) -> float:
        """Return the logarithm of the E-value that the mean is above 0 since a start; minus infinity if it was not.

        A lower bound: an average below 0 speaks against it in any case.
        """
        limit = LIMIT * math.sqrt(start.squares / start.deviations)
        weights, heights = self.weights[start.place :], [min(height, limit) for height in self.heights[start.place :]]
        product = math.fsum(map(mul, heights, weights))
        if product <= 0:
            return -math.inf
        spread = start.squares + math.fsum(map(mul, heights, heights))
        weight, degrees = math.fsum(map(mul, weights, weights)), start.deviations + len(heights)
        logs = [_log_ratio(weight, product, spread, degrees, effect) for effect in EFFECTS]
        return log_evidence(logs)


def log_rise(nights: Sequence[NightMean]) -> float:
    """Return the evidence that the mean is above 0 from some night on; the nights are in the order of their arrival.

    The sum of the E-values that start at each night (Shiryaev and Roberts; Shin, Ramdas, Rinaldo 2022,
    arXiv:2203.03532). Without a rise it is at most n in the mean after n nights: it reaches a threshold c within n
    nights with a chance of at most n/c, and c nights pass in the mean until it does.
    """
    series = _Series(nights)
    return log_sum([math.log(NONE), *map(series.log_e_value, series.starts())])


def log_recent_rise(nights: Sequence[NightMean], recent: int = RECENT) -> float:
    """Return the evidence that the mean was above 0 over the last nights, so many of them: an E-value."""
    series = _Series(nights)
    starts = list(series.starts())
    starts = starts[max(0, len(starts) - recent) :]
    return max(math.log(NONE), series.log_e_value(starts[0])) if starts else 0.0


def _log_ratio(weight: float, product: float, spread: float, degrees: int, effect: float) -> float:
    """Return the log ratio of the likelihoods, of a mean above 0 that is half normal in units of the variance to 0.

    Both are averaged over the variance; then the mean has a t distribution (the g-prior of Zellner 1986, one-sided).
    """
    shrunk = effect / (1 + effect * weight)
    left = spread - shrunk * product * product
    t = product * math.sqrt(shrunk * degrees / left)
    above = math.log(2 * probability_below(t, degrees))
    return above - math.log1p(effect * weight) / 2 - degrees / 2 * math.log(left / spread)
