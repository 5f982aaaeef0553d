"""Whether the records of a data set can be trained on, asked of Great Expectations before any model call.

Great Expectations takes seconds to import, so it is imported where the check runs and nowhere else.
"""

import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from include.core.errors import DataError
from include.core.types import JsonObject
from include.quality.report import ROWS_NAMED, ExpectationResult, FailingRow, QualityReport

if TYPE_CHECKING:
    import pandas as pd

Records = Mapping[str, Sequence[JsonObject]]
Identity = Callable[[JsonObject], str]

_PLACE = ["split", "row", "id"]
_UNIDENTIFIED = "why it has no id"
_PROBLEM = "problem"


def check_splits(
    source: str,
    splits: Records,
    identity: Identity,
    required_texts: Sequence[str],
    required_lists: Sequence[str],
    minimum_rows: int = 1,
) -> QualityReport:
    """Run the suite over the raw records of all splits.

    It expects of each record an id that is used once over all splits, the columns, texts that are not blank, lists of
    at least one text of which none is blank, and `minimum_rows` in every split.

    Args:
        source: the data set's address, for messages.
        splits: records by split; a split without records fails.
        identity: tells a record's id, or raises DataError.
        required_texts: columns that must hold a text.
        required_lists: columns that must hold a list of texts.
        minimum_rows: fewest rows of a split.
    """
    # What the libraries warn of is between them and concerns nobody who reads a task's log.
    logging.getLogger("great_expectations").setLevel(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frame = _frame(splits, identity, required_texts, required_lists)
        suite = list(_expectations(frame, required_texts, required_lists, splits, minimum_rows))
        results = tuple(_result(outcome) for outcome in _validate(frame, suite))
    return QualityReport(
        source=source,
        success=all(result.success for result in results),
        rows={split: len(records) for split, records in splits.items()},
        expectations=results,
    )


def _frame(splits: Records, identity: Identity, texts: Sequence[str], lists: Sequence[str]) -> "pd.DataFrame":
    """A row a record: each text, each list's length, where it is, its id or why it has none; None for what is unusable.

    A column that no record has is left out.
    """
    import pandas as pd

    present = {column for records in splits.values() for record in records for column in record}
    readers = {column: _text for column in texts if column in present} | {
        column: _length for column in lists if column in present
    }
    rows: list[dict[str, str | int | None]] = [
        {
            **{column: read(record.get(column)) for column, read in readers.items()},
            "split": split,
            "row": row,
            **_identified(identity, record),
        }
        for split, records in splits.items()
        for row, record in enumerate(records, start=1)
    ]
    return pd.DataFrame(rows, columns=list(dict.fromkeys([*_PLACE, _UNIDENTIFIED, *readers])))


def _expectations(
    frame: "pd.DataFrame", texts: Sequence[str], lists: Sequence[str], splits: Records, minimum_rows: int
) -> Iterator[Any]:
    from great_expectations import expectations as gxe
    from great_expectations.expectations.row_conditions import Column

    for split, records in splits.items():
        yield gxe.ExpectTableRowCountToBeBetween(
            min_value=minimum_rows,
            row_condition=Column("split") == split,
            meta={_PROBLEM: f"{len(records)} rows in split {split}, at least {minimum_rows} needed"},
        )
    reasons = frame[_UNIDENTIFIED].dropna().unique()
    problem = f"no id can be told ({'; '.join(reasons[:ROWS_NAMED])})"
    yield gxe.ExpectColumnValuesToNotBeNull(column="id", meta={_PROBLEM: problem})
    yield gxe.ExpectColumnValuesToBeUnique(column="id", meta={_PROBLEM: "the same id is used more than once"})
    for column in (*texts, *lists):
        yield gxe.ExpectColumnToExist(column=column, meta={_PROBLEM: f"no record has the column {column}"})
    for column in frame.columns.intersection([*texts]):
        problem = f"{column} is missing, blank or not a text"
        yield gxe.ExpectColumnValuesToNotBeNull(column=column, meta={_PROBLEM: problem})
    for column in frame.columns.intersection([*lists]):
        problem = f"{column} is missing or not a list of texts that are not blank"
        yield gxe.ExpectColumnValuesToNotBeNull(column=column, meta={_PROBLEM: problem})
        yield gxe.ExpectColumnValuesToBeBetween(column=column, min_value=1, meta={_PROBLEM: f"{column} is empty"})


def _validate(frame: "pd.DataFrame", suite: Sequence[Any]) -> list[dict[str, Any]]:
    """The outcome of each expectation, with the place of every failing row."""
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
    asset = context.data_sources.add_pandas("records").add_dataframe_asset("splits")
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch({"dataframe": frame})
    outcome = batch.validate(
        gx.ExpectationSuite("splits", expectations=list(suite)),
        result_format={"result_format": "COMPLETE", "unexpected_index_column_names": _PLACE},
    )
    return [result.to_json_dict() for result in outcome.results]


def _result(outcome: dict[str, Any]) -> ExpectationResult:
    configuration = outcome["expectation_config"]
    problem = str(configuration["meta"][_PROBLEM])
    failing = () if outcome["success"] else outcome["result"].get("unexpected_index_list") or ()
    return ExpectationResult(
        expectation=configuration["type"],
        column=configuration["kwargs"].get("column"),
        success=outcome["success"],
        problem="" if outcome["success"] else problem,
        failing=tuple(FailingRow(split=row["split"], row=row["row"], id=row["id"], what=problem) for row in failing),
    )


def _identified(identity: Identity, record: JsonObject) -> dict[str, str | int | None]:
    try:
        return {"id": identity(record), _UNIDENTIFIED: None}
    except DataError as error:
        return {"id": None, _UNIDENTIFIED: str(error)}


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _length(value: JsonValue) -> int | None:
    if not isinstance(value, list) or any(_text(entry) is None for entry in value):
        return None
    return len(value)
