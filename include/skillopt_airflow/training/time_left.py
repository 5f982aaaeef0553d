"""The time that a run still takes: a range, from the moments that it has finished."""

import math
from collections.abc import Sequence
from statistics import median, quantiles
from typing import NamedTuple

from skillopt_airflow.core.timeline import MomentKind

RECENT = 20
"""Of longer runs the last so many moments of a kind count: a skill that grows makes them slower."""
UNSURE = 0.5
"""The range reaches at least so far beyond the median, as a share of it after one moment; it falls with their root."""


class Seconds(NamedTuple):
    """A range of seconds."""

    low: float
    high: float

    def times(self, least: float, most: float) -> "Seconds":
        """Return what takes at least and at most so many times as long."""
        return Seconds(self.low * least, self.high * most)

    def after(self, elapsed: float) -> "Seconds":
        """Return what of it is left when so many seconds have passed."""
        return Seconds(max(0.0, self.low - elapsed), max(0.0, self.high - elapsed))


class Done(NamedTuple):
    """A finished moment."""

    kind: MomentKind
    seconds: float
    """Wall time; of a run that waited, the wait is in it."""


class Rollouts(NamedTuple):
    """Rollouts, of which it is not known yet how many."""

    least: int
    most: int


def usual(seconds: Sequence[float]) -> Seconds:
    """Return how long a moment takes that is like these: the middle half of them, wider where they are few.

    Quartiles, because a run that waited for its tasks to be cleared has one step of many hours.
    """
    recent = seconds[-RECENT:]
    middle, unsure = median(recent), 1 + UNSURE / math.sqrt(len(recent))
    low, _, high = quantiles(recent, method="inclusive") if len(recent) > 1 else (middle, middle, middle)
    return Seconds(min(low, middle / unsure), max(high, middle * unsure))


def time_left(
    done: Sequence[Done], ahead: Sequence[MomentKind], elapsed: float, rollouts: Rollouts, pace: Seconds
) -> Seconds | None:
    """Return the wall time until nothing is left to do; None before the first step has ended.

    A person who has to approve is not waited for.

    Args:
        done: the finished moments, in their order.
        ahead: the others, of which the first is under way.
        elapsed: seconds since the last one ended.
        rollouts: what follows them.
        pace: seconds of one of these.
    """
    known = {kind: usual([one.seconds for one in done if one.kind == kind]) for kind in {one.kind for one in done}}
    if "step" not in known:
        return None
    # What never happened so far, such as the first slow update, measures a candidate as a step does.
    parts = [known.get(kind, known["step"]) for kind in ahead]
    if parts:
        parts[0] = parts[0].after(elapsed)
    parts.append(pace.times(rollouts.least, rollouts.most))
    return Seconds(math.fsum(part.low for part in parts), math.fsum(part.high for part in parts))
