"""Run a suite of Great Expectations over a table in memory, without output, storage or network.

Great Expectations takes seconds to import, so it is imported where a check runs and nowhere else.
"""

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from skillopt_airflow.core.types import JsonObject
from skillopt_airflow.quality.quality_report import CHARS_QUOTED, ExpectationResult, FailingRow, quoted

if TYPE_CHECKING:
    import pandas as pd

PLACE = ["split", "row", "id"]
"""The columns of every table that tell where a row is."""
_PROBLEM, _ABOUT = "problem", "about"


def about(column: str | None, problem: str) -> dict[str, str | None]:
    """Return the `meta` of an expectation: the column as a user knows it, and the problem if it fails."""
    return {_ABOUT: column, _PROBLEM: problem}


@contextmanager
def quiet() -> Iterator[None]:
    """Silence the libraries' warnings, which tell the reader of a task's log nothing."""
    logging.getLogger("great_expectations").setLevel(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def validate(
    frame: "pd.DataFrame", suite: Sequence[Any], shown: Callable[[str, FailingRow, Any], str]
) -> tuple[ExpectationResult, ...]:
    """Return the outcome of each expectation, with the place of every failing row.

    Args:
        frame: a row a record, with the columns of PLACE.
        suite: expectations whose `meta` is made by `about`.
        shown: a failing row's value for people, by column of the frame, place, and value in the frame.
    """
    return tuple(_result(outcome, shown) for outcome in _outcomes(frame, suite))


def _outcomes(frame: "pd.DataFrame", suite: Sequence[Any]) -> list[dict[str, Any]]:
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


def _result(outcome: Mapping[str, Any], shown: Callable[[str, FailingRow, Any], str]) -> ExpectationResult:
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
        # A bound that was given as 1 comes back as 1.0.
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
    """Return the problem; for an expectation that could not be evaluated, with the library's message."""
    raised = outcome["exception_info"]
    messages = [raised] if "raised_exception" in raised else list(raised.values())
    found = [str(one["exception_message"]) for one in messages if one.get("raised_exception")]
    return f"{problem} (Great Expectations: {found[0]})" if found else problem


def _failing(column: str, row: Mapping[str, Any], shown: Callable[[str, FailingRow, Any], str]) -> FailingRow:
    name = row["id"]
    place = FailingRow(split=row["split"], row=row["row"], id=None if name is None else name[:CHARS_QUOTED])
    return place.model_copy(update={"value": shown(column, place, row.get(column))})
