"""The result of a data quality suite, and the sentence that it makes when it fails."""

from include.core.errors import DataError
from include.core.types import Value

ROWS_NAMED = 5
"""Failing rows that the sentence names for each expectation; the report has them all."""


class FailingRow(Value):
    """A record that misses an expectation."""

    split: str
    row: int
    """Position in the split, 1-based."""
    id: str | None
    """None if the record has no usable id."""
    what: str


class ExpectationResult(Value):
    """What became of one expectation."""

    expectation: str
    """Its type in Great Expectations."""
    column: str | None
    """None if it is about a split as a whole."""
    success: bool
    problem: str
    """What is wrong, or empty."""
    failing: tuple[FailingRow, ...] = ()

    def sentence(self) -> str:
        """The problem and the first rows that have it."""
        if not self.failing:
            return self.problem
        named = [f"{row.split} row {row.row} (id {row.id})" for row in self.failing[:ROWS_NAMED]]
        more = len(self.failing) - len(named)
        return f"{self.problem} in {', '.join(named)}{f' and {more} more rows' if more else ''}"


class QualityReport(Value):
    """The result of the suite, stored with the run."""

    source: str
    """Where the records come from, as the user named it."""
    success: bool
    rows: dict[str, int]
    """By split."""
    expectations: tuple[ExpectationResult, ...]

    def raise_for_failures(self) -> None:
        """Do nothing if all is well.

        Raises:
            DataError: one sentence that names every failed expectation with its first rows and ids.
        """
        problems = [result.sentence() for result in self.expectations if not result.success]
        if problems:
            raise DataError(f"data.uri = {self.source}: these records cannot be used: {'; '.join(problems)}")
