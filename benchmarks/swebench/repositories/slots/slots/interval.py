"""One interval."""

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Interval:
    """From start, which belongs to it, to end, which does not."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if self.end < self.start:
            raise ValueError(f"{self.end} lies before {self.start}")

    def __len__(self) -> int:
        return self.end - self.start

    def __contains__(self, point: int) -> bool:
        return self.start <= point < self.end

    def overlaps(self, other: "Interval") -> bool:
        """Return whether both have a point in common; empty ones have none."""
        return max(self.start, other.start) < min(self.end, other.end)

    def moved(self, by: int = 0) -> "Interval":
        """Return the interval so much later."""
        return Interval(self.start + by, self.end + by)
