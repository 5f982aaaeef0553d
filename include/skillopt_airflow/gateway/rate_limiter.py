"""Admission of tries to a model server, by the rate limit and the budget that the gateways of a run share."""

import asyncio
import time
from contextlib import suppress
from typing import Literal

from skillopt_airflow.core.wire_formats.wire_format import Tokens
from skillopt_airflow.gateway.rate_limit import RateLimit
from skillopt_airflow.gateway.shared_state import SharedState, State

POLL_SECONDS = 0.02
LONGEST_SLEEP = 1.0
"""Seconds between two looks at the pause that a server asked for: another gateway may have heard of a longer one."""
NONE = Tokens()

Outcome = Literal["answered", "overloaded", "failed"]


class BudgetSpent(Exception):
    """Nothing is left of a limit, which the message names."""


class RateLimiter:
    """Admits the tries of one gateway to one server, first come first served, `most` at the same time.

    A try costs two updates of the shared state, one as it begins and one as it ends.
    """

    def __init__(self, shared: SharedState, server: str, most: int) -> None:
        self._shared = shared
        self._server = server
        self._most = most
        self._queue = asyncio.Lock()
        self._freed = asyncio.Event()

    async def begin(self, *, calls: int = 0) -> int:
        """Wait until a try may begin, count it as so many calls, and return the cuts so far; every try has to be ended.

        Raises:
            BudgetSpent: it would be a call, and the budget allows no more.
        """

        def take(state: State) -> tuple[State, tuple[str, float, int]]:
            limit = state.limit(self._server)
            if calls and (spent := state.budget.used_up()):
                return state, (spent, 0.0, limit.cuts)
            if seconds := self._wait(limit):
                return state, ("", seconds, limit.cuts)
            begun = state.spent(calls=calls) if calls else state
            return begun.with_limit(self._server, limit.taken(self._shared.me, 1)), ("", 0.0, limit.cuts)

        async with self._queue:
            while True:
                self._freed.clear()
                spent, seconds, cuts = await self._shared.update(take)
                if spent:
                    raise BudgetSpent(spent)
                if not seconds:
                    return cuts
                # A try of this gateway that ends cuts the wait short.
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._freed.wait()

    async def end(self, began: int, how: Outcome, pause: float | None = None, tokens: Tokens = NONE) -> None:
        """End a try and deduct its tokens from the budget, also out of a task that is being cancelled.

        `pause` is what the server asked for.
        """
        await asyncio.shield(self._end(began, how, pause, tokens))

    async def _end(self, began: int, how: Outcome, pause: float | None, tokens: Tokens) -> None:
        def give(state: State) -> tuple[State, None]:
            limit = state.limit(self._server).taken(self._shared.me, -1)
            if how == "answered":
                limit = limit.answered(began, self._most)
            elif how == "overloaded":
                limit = limit.overloaded(began, time.time(), pause)
            spent = state.spent(prompt_tokens=tokens.prompt, completion_tokens=tokens.completion)
            return spent.with_limit(self._server, limit), None

        await self._shared.update(give)
        self._freed.set()

    def _wait(self, limit: RateLimit) -> float:
        """Return the seconds after which to ask again; none if a try may begin."""
        if pause := limit.wait(time.time()):
            return min(pause, LONGEST_SLEEP)
        return POLL_SECONDS if sum(limit.busy.values()) >= min(int(limit.limit), self._most) else 0.0
