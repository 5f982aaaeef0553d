"""Running a suite of Great Expectations on a table in memory, and its report.

Great Expectations takes seconds to import, so only the checks themselves import it.
"""

import logging
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import JsonValue

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.types import JsonObject, Value, canonical_json

if TYPE_CHECKING:
    import pandas as pd

ROWS_NAMED = 5
"""Limit of failing rows per expectation in an error; the report contains all of them."""
CHARS_QUOTED = 200
"""Limit of quoted values and IDs in a report."""

Suite = Literal["records", "rollouts"]


class FailingRow(Value):
    """A row that doesn't meet an expectation."""

    split: str
    """The split of a record, or the skill and sample of a rollout."""
    row: int
    """Position in the split, 1-based."""
    id: str | None
    """None if the record has no usable ID."""
    value: str = ""
    """The failing value, shortened."""


class ExpectationResult(Value):
    expectation: str
    """Type of the expectation in Great Expectations."""
    column: str | None
    """None if the expectation is about a whole split."""
    success: bool
    limits: str
    """Bounds and row condition, or empty."""
    problem: str
    """The problem in a sentence, or empty."""
    failing: tuple[FailingRow, ...] = ()

    def sentence(self) -> str:
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
    """False stops the run. A success can have failed expectations if few records fail; these become failed items."""
    rows: dict[str, int]
    """Number of rows by split."""
    expectations: tuple[ExpectationResult, ...]
    notes: tuple[str, ...] = ()
    """Notes for readers, such as skipped checks and the reasons."""

    @classmethod
    def of(
        cls, suite: Suite, source: str, rows: dict[str, int], results: tuple[ExpectationResult, ...], *notes: str
    ) -> Self:
        success = all(result.success for result in results)
        return cls(suite=suite, source=source, success=success, rows=rows, expectations=results, notes=notes)

    def with_more(self, other: "QualityReport") -> "QualityReport":
        return self.model_copy(
            update={
                "success": self.success and other.success,
                "expectations": self.expectations + other.expectations,
                "notes": self.notes + other.notes,
            }
        )

    def raise_for_failures(self) -> None:
        """Raise DataQualityError with all failed expectations and their first rows, unless the report is a success."""
        problems = [result.sentence() for result in self.expectations if not result.success]
        if not self.success:
            raise DataQualityError(f"{self.source}: these {self.suite} cannot be used: {'; '.join(problems)}", self)


class DataQualityError(DataError):
    """Rows don't meet their suite's expectations; `report` contains all of them."""

    def __init__(self, text: str, report: QualityReport) -> None:
        super().__init__(text)
        self.report = report


def quoted(value: JsonValue) -> str:
    text = canonical_json(value)
    return text if len(text) <= CHARS_QUOTED else f"{text[:CHARS_QUOTED]}… ({len(text):,} characters)"


PLACE = ["split", "row", "id"]
"""The columns of every table that identify a row."""
_PROBLEM, _ABOUT = "problem", "about"

Shown = Callable[[str, Mapping[str, Any]], str]
"""Formats the value of a failing row, which has the columns of PLACE and this column."""


def about(column: str | None, problem: str) -> dict[str, str | None]:
    """Return the `meta` of an expectation: the user's name of the column, and the problem if it fails."""
    return {_ABOUT: column, _PROBLEM: problem}


def validate(frame: "pd.DataFrame", suite: Iterable[Any], shown: Shown) -> tuple[ExpectationResult, ...]:
    """Return the outcome of each expectation, with the place of every failing row.

    Args:
        frame: one row per record, with the columns of PLACE.
        suite: expectations whose `meta` is from `about`, made while the libraries' warnings are silent.
        shown: formats a failing row's value.
    """
    logging.getLogger("great_expectations").setLevel(logging.WARNING)
    with warnings.catch_warnings():
        # They don't help the reader of a task's log.
        warnings.simplefilter("ignore")
        return tuple(_result(outcome, shown) for outcome in _outcomes(frame, suite))


def _outcomes(frame: "pd.DataFrame", suite: Iterable[Any]) -> list[dict[str, Any]]:
    import great_expectations as gx
    from great_expectations.data_context.types.base import (
        DataContextConfig,
        InMemoryStoreBackendDefaults,
        ProgressBarsConfig,
    )

    settings = DataContextConfig(
        analytics_enabled=False,
        progress_bars=ProgressBarsConfig(globally=False),
        store_backend_defaults=InMemoryStoreBackendDefaults(init_temp_docs_sites=False),
    )
    context = gx.get_context(mode="ephemeral", project_config=settings)
    asset = context.data_sources.add_pandas("rows").add_dataframe_asset("table")
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})
    outcome = batch.validate(
        gx.ExpectationSuite("suite", expectations=list(suite)),
        result_format={"result_format": "COMPLETE", "unexpected_index_column_names": PLACE},
    )
    return [result.to_json_dict() for result in outcome.results]


def _result(outcome: Mapping[str, Any], shown: Shown) -> ExpectationResult:
    configuration = outcome["expectation_config"]
    kwargs, meta = configuration["kwargs"], configuration["meta"]
    failed = not outcome["success"]
    rows: Sequence[JsonObject] = (outcome["result"].get("unexpected_index_list") or ()) if failed else ()
    return ExpectationResult(
        expectation=configuration["type"],
        column=meta[_ABOUT],
        success=not failed,
        limits=_limits(kwargs),
        problem=_problem(outcome, str(meta[_PROBLEM])) if failed else "",
        failing=tuple(_failing(str(kwargs.get("column")), row, shown) for row in rows),
    )


def _limits(kwargs: Mapping[str, Any]) -> str:
    parts = [
        # Great Expectations returns the bound 1 as 1.0.
        f"{word} {quoted(kwargs[name]).removesuffix('.0')}"
        for name, word in (("min_value", "at least"), ("max_value", "at most"), ("value_set", "one of"))
        if kwargs.get(name) is not None
    ]
    if kwargs.get("mostly") is not None:
        parts.append(f"for {kwargs['mostly']:.0%} of the rows")
    condition = kwargs.get("row_condition")
    if condition is not None:
        parts.append(f"where {condition['column']['name']} {condition['operator']} {condition['parameter']}")
    return ", ".join(parts)


def _problem(outcome: Mapping[str, Any], problem: str) -> str:
    """Return the problem, with the library's message if the expectation could not be evaluated."""
    raised = outcome["exception_info"]
    infos = [raised] if "raised_exception" in raised else list(raised.values())
    messages = [str(info["exception_message"]) for info in infos if info.get("raised_exception")]
    return f"{problem} (Great Expectations: {messages[0]})" if messages else problem


def _failing(column: str, row: Mapping[str, Any], shown: Shown) -> FailingRow:
    name = None if row["id"] is None else row["id"][:CHARS_QUOTED]
    return FailingRow(split=row["split"], row=row["row"], id=name, value=shown(column, row))
