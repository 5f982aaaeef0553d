"""Checks of a dataset's records before the first model call, and of rollouts before they count."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import TYPE_CHECKING, Any

from pydantic import JsonValue

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.errors import ConfigError, DataError
from skillopt_airflow.core.gate.run_gates import gates_of
from skillopt_airflow.core.values.types import HAS_SCORE, JsonObject, Split, Status, Value, canonical_json
from skillopt_airflow.quality.quality_report import (
    CHARS_QUOTED,
    PLACE,
    ROWS_NAMED,
    QualityReport,
    about,
    quoted,
    validate,
)
from skillopt_airflow.tasks.record_fields import UnreadableRecord
from skillopt_airflow.tasks.splits import place_id

if TYPE_CHECKING:
    import pandas as pd


class Need(Value):
    """The minimum number of rows of a split."""

    split: Split
    rows: int
    reason: str
    """The part of a run that needs them, as a phrase after the number."""


def evaluation_needs(rules: EvaluationGroup) -> Iterator[Need]:
    """Yield the rows that evaluations need, because a truncated file would silently reduce the configured number."""
    for split, limit in ((Split.VAL, rules.val_limit), (Split.TEST, rules.test_limit)):
        if limit is not None:
            yield Need(split=split, rows=limit, reason=f"for evaluation.{split}_limit = {limit}")


def training_needs(config: TrainConfig, splits: Collection[Split]) -> list[Need]:
    """Return the rows that the evaluations of a training on these splits need, and its gates to accept a candidate.

    Raises:
        ConfigError: a limit leaves a gate too few items.
    """
    rules = config.evaluation
    needs = list(evaluation_needs(rules))
    for gate in gates_of(config, splits):
        reason, limit = f"for {gate.knob} = {gate.rules.gate_policy} to accept anything", rules.limit(gate.split)
        if limit is not None and limit < gate.fewest:
            raise ConfigError(
                f"evaluation.{gate.split}_limit = {limit}: at least {gate.fewest} items are needed {reason}"
            )
        if gate.fewest > 1:
            needs.append(Need(split=gate.split, rows=gate.fewest, reason=reason))
    return needs


SCORES = ("hard", "soft")
_COUNTED = "counted for"


def check_rollouts(
    source: str, tables: Mapping[str, Sequence[Mapping[str, Any]]], item_ids: Collection[str]
) -> QualityReport:
    """Run the suite over the rows of a comparison of skills.

    Statuses and items must be known. Scores must be from 0 to 1, and only rows with a status of HAS_SCORE have them, at
    most one per item and sample. `tables` are the stored rows by skill and sample.
    """

    def shown(column: str, row: Mapping[str, Any]) -> str:
        return "" if column in ("id", _COUNTED) else str(row[column])

    results = validate(_rollout_frame(tables), _expectations(item_ids), shown)
    return QualityReport.of("rollouts", source, {name: len(rows) for name, rows in tables.items()}, results)


def _rollout_frame(tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> "pd.DataFrame":
    import pandas as pd

    rows = [
        {
            "split": name,
            "row": row,
            "id": record["item_id"],
            "status": record["status"],
            _COUNTED: f"{name}: {record['item_id']}" if record["status"] in HAS_SCORE else None,
            **{score: record[score] for score in SCORES},
        }
        for name, records in tables.items()
        for row, record in enumerate(records, start=1)
    ]
    # Without a type, a column whose scores are all missing wouldn't be numeric.
    return pd.DataFrame(rows, columns=[*PLACE, "status", _COUNTED, *SCORES]).astype(dict.fromkeys(SCORES, "float64"))


def _expectations(item_ids: Collection[str]) -> Iterator[Any]:
    from great_expectations import expectations as gxe
    from great_expectations.expectations.row_conditions import Column

    known = [status.value for status in Status]
    statuses = about("status", f"the status is none of {', '.join(known)}")
    yield gxe.ExpectColumnValuesToBeInSet(column="status", value_set=known, meta=statuses)
    yield gxe.ExpectColumnValuesToNotBeNull(column="status", meta=about("status", "the status is missing"))
    items = about("id", "the item is not one of the measured items")
    yield gxe.ExpectColumnValuesToBeInSet(column="id", value_set=sorted(item_ids), meta=items)
    twice = about("id", "the same item has more than one row with a score")
    yield gxe.ExpectColumnValuesToBeUnique(column=_COUNTED, meta=twice)
    for score in SCORES:
        outside = about(score, f"the {score} score is not between 0 and 1")
        yield gxe.ExpectColumnValuesToBeBetween(column=score, min_value=0, max_value=1, meta=outside)
        yield gxe.ExpectColumnValuesToNotBeNull(
            column=score,
            row_condition=Column("status").is_in(HAS_SCORE),
            meta=about(score, f"the {score} score is missing although the status is {' or '.join(HAS_SCORE)}"),
        )
        yield gxe.ExpectColumnValuesToBeNull(
            column=score,
            row_condition=Column("status").is_not_in(HAS_SCORE),
            meta=about(score, f"there is a {score} score although the status is not {' or '.join(HAS_SCORE)}"),
        )


Records = Mapping[str, Sequence[JsonObject]]
Identity = Callable[[JsonObject], str]

MAX_CHARS = 1_000_000
"""Limit of one record as JSON. A character has up to 4 bytes, and a sandbox returns an item with its prompt as one line
of at most 4 MiB (include/skillopt_airflow/sandbox/untrusted_output.py)."""

TOLERATED = 0.05
"""Maximum share of a split's unusable records, each of which becomes a failed item."""
_UNREADABLE = "why it cannot be read"
_UNIDENTIFIED = "why it has no id"
_EARLIER = "earlier record with its id"
_CHARS = "characters"
# Prefixes that separate a record's columns from this module's.
_TEXT, _LIST = "text ", "list "


def check_splits(
    source: str,
    splits: Records,
    identity: Identity,
    required_texts: Sequence[str],
    required_lists: Sequence[str],
    needs: Sequence[Need] = (),
) -> QualityReport:
    """Run the suite over the raw records of all splits.

    Each record must be readable, have a unique ID over all splits, and at most MAX_CHARS characters. It must have the
    required non-blank strings and non-empty lists of them. Each split must have a row, and the rows in `needs`. The
    report is still a success if at most the share TOLERATED of each split's records fails. `identity` returns a
    record's ID, or raises DataError.
    """

    def shown(column: str, row: Mapping[str, Any]) -> str:
        record = splits[row["split"]][row["row"] - 1]
        if column == _CHARS:
            longest = max(record, key=lambda key: len(canonical_json(record[key])))
            return f"{int(row[column]):,} characters, most of them in {longest}"
        if column == "id":
            return ""
        if column in {_EARLIER, _UNREADABLE}:
            return str(row[column])
        return quoted(record.get(column.removeprefix(_TEXT).removeprefix(_LIST)))

    frame = _frame(splits, identity, required_texts, required_lists)
    suite = chain(_sizes(splits, needs), _identities(frame), _columns(frame, required_texts, required_lists))
    results = validate(frame, suite, shown)
    sizes = {split: len(records) for split, records in splits.items()}
    return _tolerating(QualityReport.of("records", source, sizes, results))


def unusable_records(report: QualityReport) -> dict[str, dict[int, str]]:
    """Return the problems of failing records by split and row (1-based)."""
    problems: dict[str, dict[int, str]] = {split: {} for split in report.rows}
    for result in report.expectations:
        for row in result.failing:
            of_split = problems[row.split]
            of_split[row.row] = f"{of_split[row.row]}; {result.problem}" if row.row in of_split else result.problem
    return problems


def _tolerating(report: QualityReport) -> QualityReport:
    """Make the report a success if only few records fail, but no column or split as a whole."""
    of_records = all(result.failing for result in report.expectations if not result.success)
    few = all(len(rows) <= TOLERATED * report.rows[split] for split, rows in unusable_records(report).items())
    return report.model_copy(update={"success": of_records and few})


def _frame(splits: Records, identity: Identity, texts: Sequence[str], lists: Sequence[str]) -> "pd.DataFrame":
    """Return one row per record: its place, its ID or the error, its size, and the lengths of its required fields.

    An unusable field has no length, and a column that no record has is left out. An unreadable record passes all other
    checks.
    """
    import pandas as pd

    present = {column for records in splits.values() for record in records for column in record}
    readers: dict[str, tuple[str, Callable[[JsonValue], int | None]]] = {
        **{_TEXT + column: (column, _chars) for column in texts if column in present},
        **{_LIST + column: (column, _entries) for column in lists if column in present},
    }
    places: dict[str, str] = {}

    def measure(split: str, row: int, record: JsonObject) -> dict[str, str | int | None]:
        if isinstance(record, UnreadableRecord):
            valid = dict.fromkeys((_CHARS, *readers), 1)
            return {"id": place_id(split, row), _UNREADABLE: record.reason, **valid}
        identified, here = _identify(identity, record), f"{split} row {row}"
        first = here if identified["id"] is None else places.setdefault(identified["id"], here)
        lengths = {name: read(record.get(column)) for name, (column, read) in readers.items()}
        return {
            **identified,
            _EARLIER: None if first == here else first,
            _CHARS: len(canonical_json(record)),
            **lengths,
        }

    rows = [
        {"split": split, "row": row, **measure(split, row, record)}
        for split, records in splits.items()
        for row, record in enumerate(records, start=1)
    ]
    return pd.DataFrame(rows, columns=[*PLACE, _UNREADABLE, _UNIDENTIFIED, _EARLIER, _CHARS, *readers])


def _sizes(splits: Records, needs: Sequence[Need]) -> Iterator[Any]:
    from great_expectations import expectations as gxe
    from great_expectations.expectations.row_conditions import Column

    minima = [(split, 1, "") for split in splits]
    minima += [(need.split.value, need.rows, f" {need.reason}") for need in needs]
    for split, rows, reason in minima:
        problem = f"{len(splits[split])} rows in split {split}, at least {rows} needed{reason}"
        yield gxe.ExpectTableRowCountToBeBetween(
            min_value=rows, row_condition=Column("split") == split, meta=about(None, problem)
        )


def _identities(frame: "pd.DataFrame") -> Iterator[Any]:
    from great_expectations import expectations as gxe

    problem = f"a record cannot be read ({_reasons(frame, _UNREADABLE)})"
    yield gxe.ExpectColumnValuesToBeNull(column=_UNREADABLE, meta=about("whole record", problem))
    problem = f"no usable id ({_reasons(frame, _UNIDENTIFIED)})"
    yield gxe.ExpectColumnValuesToNotBeNull(column="id", meta=about("id", problem))
    problem = f"an earlier record has the same id ({_reasons(frame, _EARLIER)})"
    yield gxe.ExpectColumnValuesToBeNull(column=_EARLIER, meta=about("id", problem))


def _reasons(frame: "pd.DataFrame", column: str) -> str:
    return "; ".join(frame[column].dropna().unique()[:ROWS_NAMED])


def _columns(frame: "pd.DataFrame", texts: Sequence[str], lists: Sequence[str]) -> Iterator[Any]:
    from great_expectations import expectations as gxe

    for name, column in [*((_TEXT + text, text) for text in texts), *((_LIST + one, one) for one in lists)]:
        yield gxe.ExpectColumnToExist(column=name, meta=about(column, f"no record has the column {column}"))
        if name not in frame:
            continue
        kind = "a string" if name.startswith(_TEXT) else "a list of non-blank strings"
        missing = f"{column} is missing{', blank' if name.startswith(_TEXT) else ''} or not {kind}"
        yield gxe.ExpectColumnValuesToNotBeNull(column=name, meta=about(column, missing))
        if name.startswith(_LIST):
            empty = about(column, f"{column} is empty")
            yield gxe.ExpectColumnValuesToBeBetween(column=name, min_value=1, meta=empty)
    problem = f"the record has more than {MAX_CHARS:,} characters"
    yield gxe.ExpectColumnValuesToBeBetween(column=_CHARS, max_value=MAX_CHARS, meta=about("whole record", problem))


def _identify(identity: Identity, record: JsonObject) -> dict[str, str | None]:
    try:
        return {"id": identity(record), _UNIDENTIFIED: None}
    except DataError as error:
        return {"id": None, _UNIDENTIFIED: str(error)[:CHARS_QUOTED]}


def _chars(value: JsonValue) -> int | None:
    return len(value) if isinstance(value, str) and value.strip() else None


def _entries(value: JsonValue) -> int | None:
    if not isinstance(value, list) or any(_chars(entry) is None for entry in value):
        return None
    return len(value)
