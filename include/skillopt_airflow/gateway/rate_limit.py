"""The rate limit of a model server that one gateway finds: slow start, cuts on overload, pauses as the server asks."""

import asyncio
from collections import Counter
from collections.abc import Hashable
from typing import Literal

START = 32
"""Tries at the same time before anything is known of the server: as many as the default configuration has items."""
OVERLOADED = frozenset({429, 503, 529})
"""Statuses that ask for less traffic; other failures say nothing about it."""

Outcome = Literal["answered", "overloaded", "failed"]


class RateLimit:
    """Admits the tries of one gateway to one server, at most `most` at the same time.

    The next try is that of the client with the fewest tries under way, or of the one that waits longest for its turn
    among equals. So no client keeps the others waiting for all of its own tries.
    """

    def __init__(self, most: int) -> None:
        self.limit = float(START)
        """Tries at the same time, of which the whole part counts."""
        self._most = most
        self._doubling = True
        """Slow start until the first cut: every answer allows one more try, so a round of answers doubles the limit."""
        self._cuts = 0
        self._not_before = 0.0
        self._busy: Counter[Hashable] = Counter()
        self._turns = 0
        self._last_turn: dict[Hashable, int] = {}
        """Of the clients that wait or have just had a turn."""
        self._waiting: dict[asyncio.Future[int], Hashable] = {}
        self._alarm: asyncio.TimerHandle | None = None

    async def begin(self, client: Hashable) -> int:
        """Wait until a try may begin, and return the number of cuts so far; every try has to be ended."""
        turn: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = client
        self._admit()
        try:
            return await turn
        except asyncio.CancelledError:
            if not turn.cancelled():
                self.end(client, -1, "failed")
            raise
        finally:
            del self._waiting[turn]

    def end(self, client: Hashable, began: int, how: Outcome, pause: float | None = None) -> None:
        """End a try that began at `began` cuts; `pause` is what the server asks for with an overload, in seconds.

        The tries of one round all meet the same overload, so only the first of them cuts. Answers to tries from before
        the cut don't raise the new limit.
        """
        self._busy[client] -= 1
        if not self._busy[client]:
            del self._busy[client]
        if client not in self._waiting.values():
            self._last_turn.pop(client, None)
        if how == "overloaded" and pause is not None:
            self._not_before = max(self._not_before, asyncio.get_running_loop().time() + pause)
        if began == self._cuts and how == "answered":
            self.limit = min(self.limit + (1.0 if self._doubling else 1.0 / self.limit), float(self._most))
        elif began == self._cuts and how == "overloaded":
            self.limit, self._doubling, self._cuts = max(1.0, self.limit / 2), False, self._cuts + 1
        self._admit()

    def _admit(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._not_before:
            if self._alarm is None:
                self._alarm = loop.call_at(self._not_before, self._wake)
            return
        while self._busy.total() < min(int(self.limit), self._most):
            waiting = [turn for turn in self._waiting if not turn.done()]
            if not waiting:
                return
            turn = min(waiting, key=self._rank)
            client = self._waiting[turn]
            self._turns += 1
            self._busy[client] += 1
            self._last_turn[client] = self._turns
            turn.set_result(self._cuts)

    def _rank(self, turn: asyncio.Future[int]) -> tuple[int, int]:
        client = self._waiting[turn]
        return self._busy[client], self._last_turn.get(client, 0)

    def _wake(self) -> None:
        self._alarm = None
        self._admit()
