"""How many tries may be under way at a provider: slow start, halved when it is overloaded, and pauses that it asks for.

Pure arithmetic on values that the gateways of one run share; a clock's reading comes in as Unix time in seconds.
"""

from typing import Self

from pydantic import Field

from skillopt_airflow.core.types import Value

START = 32
"""Tries at the same time before anything is known of the provider: as many as the default configuration has items."""
OVERLOADED = frozenset({429, 503, 529})
"""Statuses that ask for less traffic; other failures say nothing about it."""


class Pace(Value):
    """What the answers so far say about how much a provider takes."""

    limit: float = Field(default=START, ge=1.0)
    """Tries at the same time, of which the whole part counts."""
    doubling: bool = True
    """Slow start: every answer allows one more, so that a round of answers doubles the limit; until the first cut."""
    cuts: int = Field(default=0, ge=0)
    """How often the limit was halved; a try remembers it, to tell whether it began before the last cut."""
    not_before: float = Field(default=0.0, ge=0.0)
    """When the next try may begin, as the provider asked."""

    def wait(self, now: float) -> float:
        """Seconds until a try may begin."""
        return max(0.0, self.not_before - now)

    def answered(self, began: int, most: int) -> Self:
        """After a try that began at `began` cuts was answered well; `most` is the limit's own limit."""
        if began != self.cuts:
            return self
        grown = self.limit + (1.0 if self.doubling else 1.0 / self.limit)
        return self.model_copy(update={"limit": min(grown, float(most))})

    def overloaded(self, began: int, now: float, pause: float | None) -> Self:
        """After an overload; `pause` is what the provider asked for in seconds, if it did.

        The tries of one round all meet the same overload: only the first of them cuts.
        """
        asked = self if pause is None else self.model_copy(update={"not_before": max(self.not_before, now + pause)})
        if began != self.cuts:
            return asked
        halved = max(1.0, self.limit / 2)
        return asked.model_copy(update={"limit": halved, "doubling": False, "cuts": self.cuts + 1})
