"""The result of a data quality suite, and the sentence that reports its failures."""

from collections.abc import Sequence
from typing import Literal, Self

from pydantic import JsonValue

from skillopt_airflow.core.documents import Document
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.types import Value, canonical_json

ROWS_NAMED = 5
"""Failing rows that the sentence names for each expectation; the report has them all."""
CHARS_QUOTED = 200
"""Length to which a report cuts the values and ids that it quotes."""

Suite = Literal["records", "rollouts"]


class FailingRow(Value):
    """A row that misses an expectation."""

    split: str
    """The split of a record, or the skill and draw of a rollout."""
    row: int
    """Position in the split, 1-based."""
    id: str | None
    """None if the record has no usable id."""
    value: str = ""
    """The row's value there, shortened."""


class ExpectationResult(Value):
    """The outcome of one expectation."""

    expectation: str
    """Its type in Great Expectations."""
    column: str | None
    """None if it is about a split as a whole."""
    success: bool
    limits: str
    """Its bounds and on which rows it is asked, or empty."""
    problem: str
    """The problem in a sentence, or empty."""
    failing: tuple[FailingRow, ...] = ()

    def sentence(self) -> str:
        """Return the problem and the first rows that have it."""
        if not self.failing:
            return self.problem
        named = [f"{row.split} row {row.row} (id {row.id})" for row in self.failing[:ROWS_NAMED]]
        more = len(self.failing) - len(named)
        return f"{self.problem} in {', '.join(named)}{f' and {more} more rows' if more else ''}"


class QualityReport(Document):
    """The result of a suite, stored with the run."""

    suite: Suite
    source: str
    """Origin of the rows, as the user named it."""
    success: bool
    """False stops the run. A success may have missed expectations where few records did, which are failed items."""
    rows: dict[str, int]
    """Number of rows by split."""
    expectations: tuple[ExpectationResult, ...]
    notes: tuple[str, ...] = ()
    """What else a reader should know, such as checks that were left out, and why."""

    @classmethod
    def of(
        cls,
        suite: Suite,
        source: str,
        rows: dict[str, int],
        results: Sequence[ExpectationResult],
        notes: Sequence[str] = (),
    ) -> Self:
        """Return the report on these results, a success if all of them are."""
        success = all(result.success for result in results)
        return cls(
            suite=suite, source=source, success=success, rows=rows, expectations=tuple(results), notes=tuple(notes)
        )

    def with_more(self, other: "QualityReport") -> "QualityReport":
        """Return this report together with another suite's results about the same rows."""
        return self.model_copy(
            update={
                "success": self.success and other.success,
                "expectations": self.expectations + other.expectations,
                "notes": self.notes + other.notes,
            }
        )

    def raise_for_failures(self) -> None:
        """Do nothing if all is well.

        Raises:
            DataQualityError: one sentence that names every failed expectation with its first rows and ids.
        """
        problems = [result.sentence() for result in self.expectations if not result.success]
        if not self.success:
            raise DataQualityError(f"{self.source}: these {self.suite} cannot be used: {'; '.join(problems)}", self)


class DataQualityError(DataError):
    """Rows miss expectations of their suite; `report` has all of them."""

    def __init__(self, text: str, report: QualityReport) -> None:
        super().__init__(text)
        self.report = report


def quoted(value: JsonValue) -> str:
    """Return a value as JSON, shortened."""
    text = canonical_json(value)
    return text if len(text) <= CHARS_QUOTED else f"{text[:CHARS_QUOTED]}… ({len(text):,} characters)"
