"""The rate limit of a model server: slow start, halved when the server is overloaded, and pauses that it asks for."""

from collections.abc import Mapping
from typing import Self

from pydantic import Field

from skillopt_airflow.core.types import Value

START = 32
"""Tries at the same time before anything is known of the server: as many as the default configuration has items."""
CLAIM_SECONDS = 0.5
"""Time for which a try claims slots: longer than it takes, where calls are many, until the next one wants one."""
OVERLOADED = frozenset({429, 503, 529})
"""Statuses that ask for less traffic; other failures say nothing about it."""


class RateLimit(Value):
    """The limit of one server and its use by the gateways of a run; clocks are read as Unix time in seconds."""

    limit: float = Field(default=START, ge=1.0)
    """Tries at the same time, of which the whole part counts."""
    doubling: bool = True
    """Slow start: every answer allows one more, so that a round of answers doubles the limit; until the first cut."""
    cuts: int = Field(default=0, ge=0)
    """Number of times that the limit was halved; a try remembers it to tell whether it began before the last cut."""
    not_before: float = Field(default=0.0, ge=0.0)
    """Time at which the next try may begin, as the server asked."""
    busy: Mapping[str, int] = Field(default_factory=dict)
    """Tries under way, by gateway; none for a gateway without any."""
    claimed_until: float = 0.0
    """Time until which gateways that give way keep to one try each: another one wanted a slot shortly before."""
    owed_until: float = 0.0
    """Time until which the others leave a slot free: a gateway that gives way wants one, and has none."""
    closed_until: float = 0.0
    """Time at which calls come here again; until then they go to the next server, because a whole call failed here."""

    def wait(self, now: float) -> float:
        """Return the seconds until a try may begin."""
        return max(0.0, self.not_before - now)

    def wanted(self, gateway: str, now: float, *, gives_way: bool) -> Self:
        """Return the limit when a try of a gateway wants a slot: it has a claim on one for some time."""
        if gives_way and gateway in self.busy:
            return self
        claim = "owed_until" if gives_way else "claimed_until"
        # Not at each of the many looks of a try that waits.
        if getattr(self, claim) > now + CLAIM_SECONDS / 2:
            return self
        return self.model_copy(update={claim: now + CLAIM_SECONDS})

    def paid(self) -> Self:
        """Return the limit when a gateway that gives way got a slot; another one that has none will soon ask again."""
        return self.model_copy(update={"owed_until": 0.0})

    def has_room(self, gateway: str, most: int, now: float, *, gives_way: bool) -> bool:
        """Return whether there is a slot for a gateway, of `most` if the server takes so many."""
        slots, busy = min(int(self.limit), most), sum(self.busy.values())
        if gives_way:
            return busy < slots and (gateway not in self.busy or now >= self.claimed_until)
        return busy < (max(1, slots - 1) if now < self.owed_until else slots)

    def taken(self, gateway: str, change: int) -> Self:
        """Return the limit with so many more tries of a gateway under way."""
        others = {name: tries for name, tries in self.busy.items() if name != gateway}
        # Not below zero: a state that was lost knows nothing of the tries that were under way.
        mine = max(0, self.busy.get(gateway, 0) + change)
        return self.model_copy(update={"busy": {**others, gateway: mine} if mine else others})

    def answered(self, began: int, most: int) -> Self:
        """Return the limit after an answer to a try that began at `began` cuts; it never exceeds `most`."""
        if began != self.cuts:
            return self
        grown = self.limit + (1.0 if self.doubling else 1.0 / self.limit)
        return self.model_copy(update={"limit": min(grown, float(most))})

    def overloaded(self, began: int, now: float, pause: float | None) -> Self:
        """Return the limit after an overload; `pause` is what the server asked for in seconds, if it did.

        The tries of one round all meet the same overload: only the first of them cuts.
        """
        asked = self if pause is None else self.model_copy(update={"not_before": max(self.not_before, now + pause)})
        if began != self.cuts:
            return asked
        halved = max(1.0, self.limit / 2)
        return asked.model_copy(update={"limit": halved, "doubling": False, "cuts": self.cuts + 1})
