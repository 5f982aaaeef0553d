"""Check stored rollouts before they become scores."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skillopt_airflow.core.types import HAS_SCORE, Status
from skillopt_airflow.quality.quality_report import PLACE, FailingRow, QualityReport, about, quiet, validate

if TYPE_CHECKING:
    import pandas as pd

SCORES = ("hard", "soft")
_COUNTED = "counted for"


def check_rollouts(
    source: str, tables: Mapping[str, Sequence[Mapping[str, Any]]], item_ids: Collection[str]
) -> QualityReport:
    """Run the suite over the rows from which skills are compared.

    It expects known statuses and items, one row with a score an item and draw, scores from 0 to 1 where the status is
    one of HAS_SCORE, and none elsewhere.

    Args:
        source: what was measured, for messages.
        tables: rows by skill and draw, with item_id, status, hard and soft as they are stored.
        item_ids: the items that were measured.
    """

    def shown(column: str, place: FailingRow, value: Any) -> str:
        return "" if column in ("id", _COUNTED) else str(value)

    with quiet():
        results = validate(_frame(tables), list(_expectations(item_ids)), shown)
    return QualityReport.of("rollouts", source, {name: len(rows) for name, rows in tables.items()}, results)


def _frame(tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> "pd.DataFrame":
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
