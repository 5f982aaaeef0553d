"""The rate limit of a model server: slow start, halved when the server is overloaded, and pauses that it asks for."""

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Literal, Protocol, Self, TypeVar

from pydantic import Field

from skillopt_airflow.core.types import Value

START = 32
"""Tries at the same time before anything is known of the server: as many as the default configuration has items."""
OVERLOADED = frozenset({429, 503, 529})
"""Statuses that ask for less traffic; other failures say nothing about it."""
POLL_SECONDS = 0.02
LONGEST_SLEEP = 1.0
"""Seconds between two looks at the pause that a server asked for: another gateway may have heard of a longer one."""

Result = TypeVar("Result")


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
    """Tries under way, by gateway."""
    closed_until: float = 0.0
    """Time at which calls come here again; until then they go to the next server, because a whole call failed here."""

    def wait(self, now: float) -> float:
        """Return the seconds until a try may begin."""
        return max(0.0, self.not_before - now)

    def taken(self, gateway: str, change: int) -> Self:
        """Return the limit with so many more tries of a gateway under way."""
        # Not below zero: a state that was lost knows nothing of the tries that were under way.
        return self.model_copy(update={"busy": {**self.busy, gateway: max(0, self.busy.get(gateway, 0) + change)}})

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


class SharedLimits(Protocol):
    """The limits of all servers; `me` is the name of this gateway in them."""

    me: str

    async def update_limit(self, server: str, change: Callable[[RateLimit], tuple[RateLimit, Result]]) -> Result:
        """Replace a server's limit by what `change` makes of it, nobody coming between, and return its result."""
        ...


class RateLimiter:
    """Admits the tries of one gateway to one server, first come first served, `most` at the same time."""

    def __init__(self, shared: SharedLimits, server: str, most: int) -> None:
        self._shared = shared
        self._server = server
        self._most = most
        self._queue = asyncio.Lock()
        self._freed = asyncio.Event()

    async def begin(self) -> int:
        """Wait until a try may begin, and return the cuts so far; every try has to be ended."""
        async with self._queue:
            while True:
                self._freed.clear()
                seconds, cuts = await self._shared.update_limit(self._server, self._take)
                if not seconds:
                    return cuts
                # A try of this gateway that ends cuts the wait short.
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._freed.wait()

    async def end(
        self, began: int, how: Literal["answered", "overloaded", "failed"], pause: float | None = None
    ) -> None:
        """End a try, also out of a task that is being cancelled; `pause` is what the server asked for."""
        await asyncio.shield(self._end(began, how, pause))

    async def _end(self, began: int, how: str, pause: float | None) -> None:
        def give(limit: RateLimit) -> tuple[RateLimit, None]:
            left = limit.taken(self._shared.me, -1)
            if how == "answered":
                left = left.answered(began, self._most)
            elif how == "overloaded":
                left = left.overloaded(began, time.time(), pause)
            return left, None

        await self._shared.update_limit(self._server, give)
        self._freed.set()

    def _take(self, limit: RateLimit) -> tuple[RateLimit, tuple[float, int]]:
        """Begin a try, unless the seconds after which to ask again are more than none."""
        if pause := limit.wait(time.time()):
            return limit, (min(pause, LONGEST_SLEEP), limit.cuts)
        if sum(limit.busy.values()) >= min(int(limit.limit), self._most):
            return limit, (POLL_SECONDS, limit.cuts)
        return limit.taken(self._shared.me, 1), (0.0, limit.cuts)
