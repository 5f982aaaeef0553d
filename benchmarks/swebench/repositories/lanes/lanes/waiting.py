"""A queue by priority."""

import heapq
from typing import Generic, TypeVar

T = TypeVar("T")


class Waiting(Generic[T]):
    """The lowest number comes first; of equal ones the one that waited longest."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, T]] = []
        self._count = 0

    def __len__(self) -> int:
        return len(self._heap)

    def put(self, item: T, priority: float = 0) -> None:
        """Add an item, of any type."""
        heapq.heappush(self._heap, (priority, self._count, item))
        self._count += 1

    def get(self) -> T:
        """Take the first item; IndexError if none waits."""
        if not self._heap:
            raise IndexError("nothing waits")
        return heapq.heappop(self._heap)[2]

    def drain(self, most: int = 0) -> list[T]:
        """Take items in their order, at most so many; 0 takes all."""
        wanted = min(most, len(self)) if most else len(self)
        return [self.get() for _ in range(wanted)]
