"""Admission of tries to a model server, by the rate limit that the gateways of a run share."""

import asyncio
import time
from contextlib import suppress
from typing import Literal

from skillopt_airflow.gateway.rate_limit import RateLimit
from skillopt_airflow.gateway.shared_state import SharedState

POLL_SECONDS = 0.02
LONGEST_SLEEP = 1.0
"""Seconds between two looks at the pause that a server asked for: another gateway may have heard of a longer one."""

Outcome = Literal["answered", "overloaded", "failed"]


class RateLimiter:
    """Admits the tries of one gateway to one server, first come first served.

    At the same time are under way at most `most` tries of all gateways that share the state, and `share` of this one,
    since not all gateways of a run can share one. One that gives way has one try under way, and more only while no
    other gateway wants a slot.

    A try costs two updates of the shared state, one as it begins and one as it ends.
    """

    def __init__(self, shared: SharedState, server: str, most: int, share: int, *, gives_way: bool = False) -> None:
        self._shared = shared
        self._server = server
        self._most = most
        self._share = share
        self._gives_way = gives_way
        self._queue = asyncio.Lock()
        self._freed = asyncio.Event()

    async def begin(self) -> int:
        """Wait until a try may begin, and return the cuts so far; every try has to be ended."""

        def take(limit: RateLimit) -> tuple[RateLimit, tuple[float, int]]:
            now, me = time.time(), self._shared.me
            if limit.busy.get(me, 0) >= self._share:
                return limit, (POLL_SECONDS, limit.cuts)
            limit = limit.wanted(me, now, gives_way=self._gives_way)
            if pause := limit.wait(now):
                return limit, (min(pause, LONGEST_SLEEP), limit.cuts)
            if not limit.has_room(me, self._most, now, gives_way=self._gives_way):
                return limit, (POLL_SECONDS, limit.cuts)
            if self._gives_way:
                limit = limit.paid()
            return limit.taken(me, 1), (0.0, limit.cuts)

        async with self._queue:
            while True:
                self._freed.clear()
                seconds, cuts = await self._shared.update_limit(self._server, take)
                if not seconds:
                    return cuts
                # A try of this gateway that ends cuts the wait short.
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._freed.wait()

    async def end(self, began: int, how: Outcome, pause: float | None = None) -> None:
        """End a try, also out of a task that is being cancelled; `pause` is what the server asked for."""
        await asyncio.shield(self._end(began, how, pause))

    async def _end(self, began: int, how: Outcome, pause: float | None) -> None:
        def give(limit: RateLimit) -> tuple[RateLimit, None]:
            limit = limit.taken(self._shared.me, -1)
            if how == "answered":
                limit = limit.answered(began, self._most)
            elif how == "overloaded":
                limit = limit.overloaded(began, time.time(), pause)
            return limit, None

        await self._shared.update_limit(self._server, give)
        self._freed.set()
