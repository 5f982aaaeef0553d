"""Checks of a night's items: they must be new, and similar to the champion's training items."""

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import JsonValue

from skillopt_airflow.core.values.types import Item, Split, canonical_json, sha256
from skillopt_airflow.quality.quality_report import FailingRow, QualityReport, about, quoted, validate

if TYPE_CHECKING:
    import pandas as pd

MIN_FRESH = 10
"""Minimum size of a partition for the drift check."""
MIN_REFERENCE = 20
"""Minimum number of reference items for the drift check."""
LIKE_LENGTHS = 1.5
"""Two lengths count as equal up to this ratio."""
OTHER_KINDS = 0.25
"""Maximum share of a partition's items with a kind of value that the reference never has."""
TOLERANCE, STANDARD_ERRORS = 0.3, 4.0
"""Allowed distance of the mean rank from one half: 0.3, and at least 4 standard errors of the rank test (Mann-Whitney).
The false positive rate per partition, over all its fields, is about 1 in 10,000."""

_KINDS = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}


class Drift:
    """The comparison of one field of a partition's items with the reference."""

    def __init__(self, part: str, key: str, items: Sequence[Item], reference: Sequence[Item]) -> None:
        """Measure the field; `part` is public or reference."""
        self.name = f"{part}.{key}"
        self.kind, self.length = f"kind of {self.name}", f"length of {self.name}"
        self.values: list[JsonValue] = [getattr(item, part).get(key) for item in items]
        usual = [getattr(item, part).get(key) for item in reference]
        self._items = items
        self._kinds = sorted(set(map(kind_of, usual)))
        self._lengths = [length_of(value) for value in self.values]
        self._usual = sorted(length for length in map(length_of, usual) if length is not None)
        self._ranks = [
            relative_rank(length, self._usual) if self._usual and length is not None else None
            for length in self._lengths
        ]
        self._side = math.fsum(rank - 0.5 for rank in self._ranks if rank is not None)

    @property
    def columns(self) -> dict[str, list[Any]]:
        return {self.kind: [*map(kind_of, self.values)], self.length: self._ranks}

    def expectations(self) -> Iterator[Any]:
        from great_expectations import expectations as gxe

        yield gxe.ExpectColumnValuesToBeInSet(
            column=self.kind,
            value_set=self._kinds,
            mostly=1 - OTHER_KINDS,
            meta=about(self.name, f"{self.name} is no longer {' or '.join(self._kinds)}"),
        )
        known = [length for length in self._lengths if length is not None]
        if len(known) < MIN_FRESH or len(self._usual) < MIN_REFERENCE:
            return
        allowed, relation = tolerance(len(known), len(self._usual)), "longer" if self._side > 0 else "shorter"
        medians = f"median {median(known):,.0f} characters, {median(self._usual):,.0f} in the reference"
        yield gxe.ExpectColumnMeanToBeBetween(
            column=self.length,
            min_value=0.5 - allowed,
            max_value=0.5 + allowed,
            meta=about(self.name, f"{self.name} is much {relation} than it was ({medians})"),
        )

    def outliers(self) -> tuple[FailingRow, ...]:
        """Return the items whose length deviates most in the direction of the mean."""
        return tuple(
            FailingRow(split=Split.FRESH.value, row=row, id=item.id, value=f"{length:,} characters")
            for row, (item, length, rank) in enumerate(
                zip(self._items, self._lengths, self._ranks, strict=True), start=1
            )
            if rank is not None and (rank - 0.5) * self._side > TOLERANCE
        )


def relative_rank(length: int, usual: Sequence[int]) -> float:
    """Return the share of the sorted lengths that are clearly shorter than `length`; similar ones count one half."""
    longer_than = bisect_left(usual, length / LIKE_LENGTHS)
    shorter_than = len(usual) - bisect_right(usual, length * LIKE_LENGTHS)
    return 0.5 + (longer_than - shorter_than) / (2 * len(usual))


def tolerance(fresh: int, reference: int) -> float:
    """Return the allowed distance of the mean rank from one half, for these numbers of items."""
    return max(TOLERANCE, STANDARD_ERRORS * math.sqrt((fresh + reference + 1) / (12 * fresh * reference)))


def length_of(value: JsonValue) -> int | None:
    """Return the length of a string, or of a list or object as JSON; None for other values."""
    if isinstance(value, str):
        return len(value)
    return len(canonical_json(value)) if isinstance(value, list | dict) else None


def kind_of(value: JsonValue) -> str:
    return _KINDS.get(type(value), "a number")


FINGERPRINT = 16
"""Number of stored digits of a content hash; the collision probability among a million items is 1 in 40 million."""


class MeasuredItems(NamedTuple):
    """The night of each measured item."""

    by_id: Mapping[str, str]
    by_content: Mapping[str, str]
    """By fingerprint."""


_KNOWN = {
    "learned id": "the champion was trained or selected on an item with the same id",
    "learned content": "the champion was trained or selected on an item that looks the same to the target",
    "other night": "another night has an item with the same id; each item counts only once",
    "other night's content": "another night has an item that looks the same to the target; each item counts only once",
}


def check_fresh(
    source: str,
    items: Sequence[Item],
    learned: Mapping[Split, Sequence[Item]],
    reference: Sequence[Item],
    nights: MeasuredItems,
) -> QualityReport:
    """Run the suite over a partition, after `check_splits`.

    By id and by content, items must be new to the champion and to all other nights. If there are enough items, kinds of
    value and lengths of strings must be similar to those of `reference`.
    """
    enough = len(items) >= MIN_FRESH and len(reference) >= MIN_REFERENCE
    compared = [*items, *reference] if enough else []
    fields = {("public", key) for item in compared for key in item.public}
    fields |= {("reference", key) for item in compared for key in item.reference}
    drifts = [Drift(*field, items, reference) for field in sorted(fields)]

    def shown(column: str, row: Mapping[str, Any]) -> str:
        if column in _KNOWN:
            return str(row[column])
        return next(quoted(drift.values[row["row"] - 1]) for drift in drifts if drift.kind == column)

    suite = chain(_unknown(), *(drift.expectations() for drift in drifts))
    results = validate(_frame(items, learned, nights, drifts), suite, shown)
    outliers = {drift.name: drift.outliers() for drift in drifts}
    few = (
        f"drift was not checked: {len(items)} fresh items and {len(reference)} of the reference, at least {MIN_FRESH} "
        f"and {MIN_REFERENCE} needed"
    )
    notes = [] if enough else [few]
    named = tuple(
        # The outcome of a mean doesn't name any rows.
        result.model_copy(update={"failing": outliers[str(result.column)]})
        if not result.success and result.expectation == "expect_column_mean_to_be_between"
        else result
        for result in results
    )
    return QualityReport.of("records", source, {Split.FRESH.value: len(items)}, named, *notes)


def content(item: Item) -> str:
    """Return the SHA-256 of an item's public part and stored files, independent of its id and the order of its lists.

    A benchmark may shuffle choices by the id, so the same item can have another order under another id.
    """
    public = _unordered(item.public)
    files: list[JsonValue] = [*sorted(file.sha256 for file in item.files)]
    return sha256(canonical_json({"public": public, "files": files} if files else public))


def fingerprint(content: str) -> str:
    return content[:FINGERPRINT]


def _frame(
    items: Sequence[Item],
    learned: Mapping[Split, Sequence[Item]],
    nights: MeasuredItems,
    drifts: Sequence[Drift],
) -> "pd.DataFrame":
    import pandas as pd

    by_id = {item.id: f"{split} item {item.id}" for split, known in learned.items() for item in known}
    by_content = {content(item): f"{split} item {item.id}" for split, known in learned.items() for item in known}
    ids, contents = [item.id for item in items], [content(item) for item in items]
    matches = (
        [by_id.get(item) for item in ids],
        [by_content.get(one) for one in contents],
        [nights.by_id.get(item) for item in ids],
        [nights.by_content.get(fingerprint(one)) for one in contents],
    )
    columns: dict[str, list[Any]] = {
        "split": [Split.FRESH.value] * len(items),
        "row": [*range(1, len(items) + 1)],
        "id": ids,
        **dict(zip(_KNOWN, matches, strict=True)),
    }
    for drift in drifts:
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
