"""Turns at a provider: a try begins when the pace that the run's gateways share allows one more."""

import asyncio
import time
from dataclasses import dataclass
from typing import Literal

from skillopt_airflow.gateway.shared_state import Commons, Lane, State

POLL_SECONDS = 0.02
LONGEST_SLEEP = 1.0
"""Seconds between two looks at the pause that a provider asked for: another gateway may have heard of a longer one."""


@dataclass(frozen=True)
class Turn:
    """Leave for one try."""

    cuts: int
    """How often the pace had been cut when it began."""


@dataclass(frozen=True)
class Ended:
    """How a try went, as far as the pace is concerned."""

    how: Literal["answered", "overloaded", "failed"]
    pause: float | None = None
    """Seconds that the provider asked for with an overload."""


class Turns:
    """The turns of one gateway at one provider, first come first served; `most` may be under way at the same time."""

    def __init__(self, commons: Commons, lane: str, most: int) -> None:
        self._commons = commons
        self._lane = lane
        self._most = most
        self._queue = asyncio.Lock()
        self._freed = asyncio.Event()

    async def begin(self) -> Turn:
        """Wait for leave; every turn has to be ended."""
        async with self._queue:
            while True:
                self._freed.clear()
                got = await self._commons.update(self._take)
                if isinstance(got, Turn):
                    return got
                await self._sleep(got)

    async def end(self, turn: Turn, ended: Ended) -> None:
        """Give the turn back, also out of a task that is being cancelled."""
        await asyncio.shield(self._end(turn, ended))

    async def _end(self, turn: Turn, ended: Ended) -> None:
        def give(state: State) -> tuple[State, None]:
            lane = state.lane(self._lane).taken(self._commons.me, -1)
            return state.with_lane(self._lane, self._paced(lane, turn, ended)), None

        await self._commons.update(give)
        self._freed.set()

    def _paced(self, lane: Lane, turn: Turn, ended: Ended) -> Lane:
        if ended.how == "failed":
            return lane
        if ended.how == "answered":
            return lane.model_copy(update={"pace": lane.pace.answered(turn.cuts, self._most)})
        return lane.model_copy(update={"pace": lane.pace.overloaded(turn.cuts, time.time(), ended.pause)})

    def _take(self, state: State) -> tuple[State, Turn | float]:
        """A turn, or the seconds after which to ask again."""
        lane = state.lane(self._lane)
        pause = lane.pace.wait(time.time())
        if pause > 0:
            return state, min(pause, LONGEST_SLEEP)
        if sum(lane.busy.values()) >= min(int(lane.pace.limit), self._most):
            return state, POLL_SECONDS
        return state.with_lane(self._lane, lane.taken(self._commons.me, 1)), Turn(lane.pace.cuts)

    async def _sleep(self, seconds: float) -> None:
        """Wait, but not longer than until a turn of this gateway ends."""
        try:
            async with asyncio.timeout(seconds):
                await self._freed.wait()
        except TimeoutError:
            pass
