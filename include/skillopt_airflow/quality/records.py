"""Check that the records of a data set can be trained on before any model call, and rollouts before they count."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
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
    FailingRow,
    QualityReport,
    about,
    quiet,
    quoted,
    validate,
)
from skillopt_airflow.tasks.record_fields import UnreadableRecord
from skillopt_airflow.tasks.splits import place_id

if TYPE_CHECKING:
    import pandas as pd


class Need(Value):
    """The fewest rows that a split must have."""

    split: Split
    rows: int
    reason: str
    """The part of a run that needs them, as a clause behind the number."""


def evaluation_needs(rules: EvaluationGroup) -> Iterator[Need]:
    """Yield what evaluations need: a file that was cut short would be measured on fewer items than configured."""
    for split, knob, limit in (
        (Split.VAL, "val_limit", rules.val_limit),
        (Split.TEST, "test_limit", rules.test_limit),
    ):
        if limit is not None:
            yield Need(split=split, rows=limit, reason=f"for evaluation.{knob} = {limit}")


def training_needs(config: TrainConfig, splits: Collection[Split]) -> list[Need]:
    """Return what a training on these splits needs: that, and enough items for its gates to accept anything.

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
    """Run the suite over the rows from which skills are compared.

    It expects known statuses and items, one row with a score an item and draw, scores from 0 to 1 where the status is
    one of HAS_SCORE, and none elsewhere. `tables` are rows by skill and draw, as they are stored.
    """

    def shown(column: str, place: FailingRow, value: Any) -> str:
        return "" if column in ("id", _COUNTED) else str(value)

    with quiet():
        results = validate(_rollout_frame(tables), list(_expectations(item_ids)), shown)
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
    # A column of scores that are all missing would have no number type.
    return pd.DataFrame(rows, columns=[*PLACE, "status", _COUNTED, *SCORES]).astype(dict.fromkeys(SCORES, "float64"))


def _expectations(item_ids: Collection[str]) -> Iterator[Any]:
    from great_expectations import expectations as gxe
    from great_expectations.expectations.row_conditions import Column

    known = [status.value for status in Status]
    statuses = about("status", f"the status is none of {', '.join(known)}")
    yield gxe.ExpectColumnValuesToBeInSet(column="status", value_set=known, meta=statuses)
    yield gxe.ExpectColumnValuesToNotBeNull(column="status", meta=about("status", "the status is missing"))
    items = about("id", "the item is none of those that were measured")
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
"""Limit of one record as JSON. A character has up to 4 bytes, and what comes back about an item, its prompt included,
is one line of at most 4 MiB (include/skillopt_airflow/sandbox/untrusted_output.py)."""

TOLERATED = 0.05
"""Share of a split's records that may be of no use, each a failed item of its own; with more the split is refused."""
_UNREADABLE = "why it cannot be read"
_UNIDENTIFIED = "why it has no id"
_EARLIER = "earlier record with its id"
_CHARS = "characters"
# Keeps what a record calls its columns apart from what this module does.
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

    It expects of each record that it could be read, an id that no record before it has in any split, the columns,
    texts that are not blank, lists of at least one text of which none is blank, and at most MAX_CHARS characters; of
    each split a row, and its needs. It is a success, too, if all that fails is a share of each split's records that is
    TOLERATED. `identity` tells a record's id, or raises DataError.
    """

    def shown(column: str, place: FailingRow, value: Any) -> str:
        record = splits[place.split][place.row - 1]
        if column == _CHARS:
            longest = max(record, key=lambda key: len(canonical_json(record[key])))
            return f"{int(value):,} characters, most of them in {longest}"
        if column == "id":
            return ""
        if column in {_EARLIER, _UNREADABLE}:
            return str(value)
        return quoted(record.get(column.removeprefix(_TEXT).removeprefix(_LIST)))

    with quiet():
        frame = _frame(splits, identity, required_texts, required_lists)
        suite = [
            *_sizes(splits, needs),
            *_identities(frame),
            *_columns(frame, required_texts, required_lists),
        ]
        results = validate(frame, suite, shown)
    sizes = {split: len(records) for split, records in splits.items()}
    return _tolerating(QualityReport.of("records", source, sizes, results))


def unusable_records(report: QualityReport) -> dict[str, dict[int, str]]:
    """Return what is wrong with records that miss an expectation, by split and row (1-based)."""
    found: dict[str, dict[int, str]] = {split: {} for split in report.rows}
    for result in report.expectations:
        for row in result.failing:
            reasons = found[row.split]
            reasons[row.row] = f"{reasons[row.row]}; {result.problem}" if row.row in reasons else result.problem
    return found


def _tolerating(report: QualityReport) -> QualityReport:
    """Return the report as a success if all that fails are few records.

    A column that no record has and a split that is too small are no single record's.
    """
    of_records = all(result.failing for result in report.expectations if not result.success)
    few = all(len(rows) <= TOLERATED * report.rows[split] for split, rows in unusable_records(report).items())
    return report.model_copy(update={"success": of_records and few})


def _frame(splits: Records, identity: Identity, texts: Sequence[str], lists: Sequence[str]) -> "pd.DataFrame":
    """Return one row a record: its place, its id or why it has none, its size, and the lengths of what it must hold.

    A length is None for what is unusable; a column that no record has is left out. Of a record that cannot be read
    nothing else is asked.
    """
    import pandas as pd

    present = {column for records in splits.values() for record in records for column in record}
    readers: dict[str, tuple[str, Callable[[JsonValue], int | None]]] = {
        **{_TEXT + column: (column, _chars) for column in texts if column in present},
        **{_LIST + column: (column, _entries) for column in lists if column in present},
    }
    places: dict[str, str] = {}

    def told(split: str, row: int, record: JsonObject) -> dict[str, str | int | None]:
        if isinstance(record, UnreadableRecord):
            fine = dict.fromkeys((_CHARS, *readers), 1)
            return {"id": place_id(split, row), _UNREADABLE: record.reason, **fine}
        found, here = _identified(identity, record), f"{split} row {row}"
        first = here if found["id"] is None else places.setdefault(found["id"], here)
        lengths = {name: read(record.get(column)) for name, (column, read) in readers.items()}
        return {
            **found,
            _EARLIER: None if first == here else first,
            _CHARS: len(canonical_json(record)),
            **lengths,
        }

    rows = [
        {"split": split, "row": row, **told(split, row, record)}
        for split, records in splits.items()
        for row, record in enumerate(records, start=1)
    ]
    return pd.DataFrame(rows, columns=[*PLACE, _UNREADABLE, _UNIDENTIFIED, _EARLIER, _CHARS, *readers])


def _sizes(splits: Records, needs: Sequence[Need]) -> Iterator[Any]:
    from great_expectations import expectations as gxe
    from great_expectations.expectations.row_conditions import Column

    wanted = [(split, 1, "") for split in splits]
    wanted += [(need.split.value, need.rows, f" {need.reason}") for need in needs]
    for split, rows, reason in wanted:
        problem = f"{len(splits[split])} rows in split {split}, at least {rows} needed{reason}"
        yield gxe.ExpectTableRowCountToBeBetween(
            min_value=rows, row_condition=Column("split") == split, meta=about(None, problem)
        )


def _identities(frame: "pd.DataFrame") -> Iterator[Any]:
    from great_expectations import expectations as gxe

    problem = f"a record cannot be read ({_reasons(frame, _UNREADABLE)})"
    yield gxe.ExpectColumnValuesToBeNull(column=_UNREADABLE, meta=about("whole record", problem))
    problem = f"no id can be told ({_reasons(frame, _UNIDENTIFIED)})"
    yield gxe.ExpectColumnValuesToNotBeNull(column="id", meta=about("id", problem))
    problem = f"the same id is used by an earlier record ({_reasons(frame, _EARLIER)})"
    yield gxe.ExpectColumnValuesToBeNull(column=_EARLIER, meta=about("id", problem))


def _reasons(frame: "pd.DataFrame", column: str) -> str:
    return "; ".join(frame[column].dropna().unique()[:ROWS_NAMED])


def _columns(frame: "pd.DataFrame", texts: Sequence[str], lists: Sequence[str]) -> Iterator[Any]:
    from great_expectations import expectations as gxe

    for name, column in [*((_TEXT + text, text) for text in texts), *((_LIST + one, one) for one in lists)]:
        yield gxe.ExpectColumnToExist(column=name, meta=about(column, f"no record has the column {column}"))
        if name not in frame:
            continue
        kind = "a text" if name.startswith(_TEXT) else "a list of texts that are not blank"
        missing = f"{column} is missing{', blank' if name.startswith(_TEXT) else ''} or not {kind}"
        yield gxe.ExpectColumnValuesToNotBeNull(column=name, meta=about(column, missing))
        if name.startswith(_LIST):
            empty = about(column, f"{column} is empty")
            yield gxe.ExpectColumnValuesToBeBetween(column=name, min_value=1, meta=empty)
    problem = f"the record has more than {MAX_CHARS:,} characters"
    yield gxe.ExpectColumnValuesToBeBetween(column=_CHARS, max_value=MAX_CHARS, meta=about("whole record", problem))


def _identified(identity: Identity, record: JsonObject) -> dict[str, str | None]:
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
