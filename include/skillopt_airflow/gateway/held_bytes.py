"""The bytes that all requests of a gateway hold together, counted as they arrive."""

import asyncio
from collections import Counter
from collections.abc import Hashable


class HeldBytes:
    """Room for requests; one that finds none waits until others have their answers.

    The last part of the room, as much as the longest request takes, belongs to one request at a time until all of that
    has arrived. So requests that arrive side by side never wait for each other for ever: that one only waits for the
    answers of others that are complete.
    """

    def __init__(self, most: int, longest: int) -> None:
        """Take the bytes of all requests together, and those of the longest."""
        self._most = most
        self._shared = most - longest
        self._held: Counter[Hashable] = Counter()
        self._last: Hashable = None
        self._changed = asyncio.Event()

    async def take(self, request: Hashable, count: int) -> None:
        """Wait until a request has room for so many bytes more."""
        while not self._has_room(request, count):
            self._changed.clear()
            await self._changed.wait()
        self._held[request] += count

    def arrived(self, request: Hashable) -> None:
        """Leave the last part of the room to another, since no more bytes of this request follow."""
        if self._last is request:
            self._last = None
            self._changed.set()

    def release(self, request: Hashable) -> None:
        """Make the room free that a request has, if any."""
        self._held.pop(request, None)
        self.arrived(request)
        self._changed.set()

    def _has_room(self, request: Hashable, count: int) -> bool:
        held = self._held.total() + count
        # The end of a body brings no bytes.
        if count == 0 or held <= self._shared:
            return True
        if self._last is None:
            self._last = request
        return self._last is request and held <= self._most
