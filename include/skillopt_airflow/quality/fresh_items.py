"""Check the items of a night: they are new, and of the kind that the champion was trained for."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import JsonValue

from skillopt_airflow.core.values.types import Item, Split, canonical_json, sha256
from skillopt_airflow.quality.quality_report import FailingRow, QualityReport, about, quiet, quoted, validate

if TYPE_CHECKING:
    import pandas as pd

MIN_FRESH = 10
"""Items of a partition below which drift is not looked for: so few may be like anything."""
MIN_REFERENCE = 20
"""The same for the items that it is compared with."""
LIKE_LENGTHS = 1.5
"""Two lengths are alike unless one is more than so many times the other."""
OTHER_KINDS = 0.25
"""Share of a partition's items that may have a kind of value which the reference never has."""
TOLERANCE, STANDARD_ERRORS = 0.3, 4.0
"""The distance from one half that the mean standing may have: 0.3, and at least 4 standard errors of the rank test
(Mann-Whitney) that it is. Of 10,000 partitions drawn from the reference's own distribution, about one misses that, on
any field."""

_KINDS = {dict: "an object", list: "a list", str: "a text", bool: "a truth value", type(None): "null"}


class Field(NamedTuple):
    """One entry of the items' public or reference part."""

    part: str
    key: str

    @property
    def name(self) -> str:
        return f"{self.part}.{self.key}"

    @property
    def kind(self) -> str:
        return f"kind of {self.name}"

    @property
    def length(self) -> str:
        return f"length of {self.name}"

    def of(self, item: Item) -> JsonValue:
        return (item.public if self.part == "public" else item.reference).get(self.key)


class Drift:
    """One field of a partition's items against the reference's."""

    def __init__(self, field: Field, items: Sequence[Item], reference: Sequence[Item]) -> None:
        self.field = field
        self._items = items
        self._reference = reference
        self._lengths = [length_of(field.of(item)) for item in items]
        self._usual = sorted(length for item in reference if (length := length_of(field.of(item))) is not None)

    @property
    def columns(self) -> dict[str, list[Any]]:
        return {
            self.field.kind: [kind_of(self.field.of(item)) for item in self._items],
            self.field.length: self._standings,
        }

    def expectations(self) -> Iterator[Any]:
        from great_expectations import expectations as gxe

        name, kinds = self.field.name, sorted({kind_of(self.field.of(item)) for item in self._reference})
        yield gxe.ExpectColumnValuesToBeInSet(
            column=self.field.kind,
            value_set=kinds,
            mostly=1 - OTHER_KINDS,
            meta=about(name, f"{name} is no longer {' or '.join(kinds)}"),
        )
        known = [length for length in self._lengths if length is not None]
        if len(known) < MIN_FRESH or len(self._usual) < MIN_REFERENCE:
            return
        allowed, relation = tolerance(len(known), len(self._usual)), "longer" if self._side > 0 else "shorter"
        medians = f"median {median(known):,.0f} characters, {median(self._usual):,.0f} in the reference"
        yield gxe.ExpectColumnMeanToBeBetween(
            column=self.field.length,
            min_value=0.5 - allowed,
            max_value=0.5 + allowed,
            meta=about(name, f"{name} is much {relation} than it was ({medians})"),
        )

    def outliers(self) -> tuple[FailingRow, ...]:
        """Return the items whose length stands out on the side to which the mean leans."""
        return tuple(
            FailingRow(split=Split.FRESH.value, row=row, id=item.id, value=f"{length:,} characters")
            for row, (item, length, among) in enumerate(
                zip(self._items, self._lengths, self._standings, strict=True), start=1
            )
            if among is not None and (among - 0.5) * self._side > TOLERANCE
        )

    @cached_property
    def _standings(self) -> list[float | None]:
        if not self._usual:
            return [None] * len(self._items)
        return [None if length is None else standing(length, self._usual) for length in self._lengths]

    @property
    def _side(self) -> float:
        return math.fsum(among - 0.5 for among in self._standings if among is not None)


def fields_of(items: Sequence[Item]) -> list[Field]:
    found = {Field("public", key) for item in items for key in item.public}
    return sorted(found | {Field("reference", key) for item in items for key in item.reference})


def standing(length: int, usual: Sequence[int]) -> float:
    """Return the share of the sorted lengths that are clearly shorter than this one; similar ones count one half."""
    longer_than = bisect_left(usual, length / LIKE_LENGTHS)
    shorter_than = len(usual) - bisect_right(usual, length * LIKE_LENGTHS)
    return 0.5 + (longer_than - shorter_than) / (2 * len(usual))


def tolerance(fresh: int, reference: int) -> float:
    """Return how far from one half the mean standing of so many fresh items may be among so many of the reference."""
    return max(TOLERANCE, STANDARD_ERRORS * math.sqrt((fresh + reference + 1) / (12 * fresh * reference)))


def length_of(value: JsonValue) -> int | None:
    """Return the characters of a text, or of a list or object as JSON; other values have none."""
    if isinstance(value, str):
        return len(value)
    return len(canonical_json(value)) if isinstance(value, list | dict) else None


def kind_of(value: JsonValue) -> str:
    return _KINDS.get(type(value), "a number")


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
    as in the reference, items of the kind that the champion was made for.
    """
    enough = len(items) >= MIN_FRESH and len(reference) >= MIN_REFERENCE
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
        f"{MIN_FRESH} and {MIN_REFERENCE} are needed"
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
