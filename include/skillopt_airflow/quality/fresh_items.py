"""Check the items of a night: they are new, and of the kind that the champion was trained for."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import JsonValue

from skillopt_airflow.core.types import Item, Split, canonical_json, sha256
from skillopt_airflow.quality.drift import FEWEST_FRESH, FEWEST_REFERENCE, Drift, fields_of
from skillopt_airflow.quality.quality_report import FailingRow, QualityReport, quoted
from skillopt_airflow.quality.validation import about, quiet, validate

if TYPE_CHECKING:
    import pandas as pd

FINGERPRINT = 16
"""Digits of a content that are kept: among a million items two share them by chance once in forty million cases."""


class MeasuredItems(NamedTuple):
    """The items of nights: the night of each."""

    by_id: Mapping[str, str]
    by_content: Mapping[str, str]
    """By fingerprint."""


_KNOWN = {
    "learned id": "the champion was trained or selected on an item with the same id",
    "learned content": "the champion was trained or selected on an item that looks the same to the target",
    "other night": "another night has an item with the same id, and each may be evidence only once",
    "other night's content": (
        "another night has an item that looks the same to the target, and each may be evidence only once"
    ),
}


def check_fresh(
    source: str,
    items: Sequence[Item],
    learned: Mapping[Split, Sequence[Item]],
    reference: Sequence[Item],
    nights: MeasuredItems,
) -> QualityReport:
    """Run the suite over a partition, whose records have passed that of splits.

    It expects items that the champion was not trained on and that no other night had, told by id and by public content,
    in which the order of lists does not count; and, where there are enough of them, kinds of value and lengths of texts
    as in the reference.

    Args:
        source: the partition's address, for messages.
        items: the partition's, in its order.
        learned: the items that the champion was trained and selected on.
        reference: items of the kind that the champion was made for.
        nights: the items of the other nights.
    """
    enough = len(items) >= FEWEST_FRESH and len(reference) >= FEWEST_REFERENCE
    drifts = {field.name: Drift(field, items, reference) for field in fields_of([*items, *reference]) if enough}

    def shown(column: str, place: FailingRow, value: Any) -> str:
        if column in _KNOWN:
            return str(value)
        drift = next(drift for drift in drifts.values() if drift.field.kind == column)
        return quoted(drift.field.of(items[place.row - 1]))

    with quiet():
        suite = [*_unknown(), *(one for drift in drifts.values() for one in drift.expectations())]
        results = validate(_frame(items, learned, nights, drifts), suite, shown)
    few = (
        f"drift was not looked for: {len(items)} fresh items and {len(reference)} of the reference, of which at least "
        f"{FEWEST_FRESH} and {FEWEST_REFERENCE} are needed"
    )
    named = tuple(
        # A mean fails as a whole; the outcome does not say which rows it leans on.
        result.model_copy(update={"failing": drifts[str(result.column)].outliers()})
        if not result.success and result.expectation == "expect_column_mean_to_be_between"
        else result
        for result in results
    )
    return QualityReport.of("records", source, {Split.FRESH.value: len(items)}, named, () if enough else (few,))


def content(item: Item) -> str:
    """Return the SHA-256 of what the target is given of an item, regardless of its id and of the order of its lists.

    A benchmark may shuffle choices by the id; with another id they would look like another item. Of an item with files,
    which are stored, it is that of their contents as well.
    """
    given = _unordered(item.public)
    files: list[JsonValue] = [*sorted(file.sha256 for file in item.files)]
    return sha256(canonical_json({"public": given, "files": files} if files else given))


def fingerprint(content: str) -> str:
    """Return what is kept of a content for each item of each night."""
    return content[:FINGERPRINT]


def _frame(
    items: Sequence[Item],
    learned: Mapping[Split, Sequence[Item]],
    nights: MeasuredItems,
    drifts: Mapping[str, Drift],
) -> "pd.DataFrame":
    import pandas as pd

    by_id = {item.id: f"{split} item {item.id}" for split, known in learned.items() for item in known}
    by_content = {content(item): f"{split} item {item.id}" for split, known in learned.items() for item in known}
    ids, contents = [item.id for item in items], [content(item) for item in items]
    found = (
        [by_id.get(item) for item in ids],
        [by_content.get(one) for one in contents],
        [nights.by_id.get(item) for item in ids],
        [nights.by_content.get(fingerprint(one)) for one in contents],
    )
    columns: dict[str, list[Any]] = {
        "split": [Split.FRESH.value] * len(items),
        "row": [*range(1, len(items) + 1)],
        "id": ids,
        **dict(zip(_KNOWN, found, strict=True)),
    }
    for drift in drifts.values():
        columns |= drift.columns
    return pd.DataFrame(columns)


def _unknown() -> Iterator[Any]:
    from great_expectations import expectations as gxe

    for column, problem in _KNOWN.items():
        yield gxe.ExpectColumnValuesToBeNull(column=column, meta=about("whole item", problem))


def _unordered(value: JsonValue) -> JsonValue:
    if isinstance(value, dict):
        return {key: _unordered(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return sorted((_unordered(inner) for inner in value), key=canonical_json)
    return value
