"""Stored rollouts for the UI: a skill's rollouts as a list with filters, sorting and search, and all tries of an item.

Only the necessary row groups and columns of a part are read. Filters return places of rows instead of copies, and only
the rows of a page become objects.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skillopt_airflow.core.gate.item_scores import Metric
from skillopt_airflow.core.values.types import Status
from skillopt_airflow.store import keys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.tables.parquet import RolloutRow, open_parquet, read_parts, rollouts_from_table
from skillopt_airflow.store.tables.rollout_table import IDENTITY, Partition, RolloutKey, has_score, same_key

Show = Literal["all", "success", "failure", "no_score", "won", "lost", "tied", "flipped"]
"""success is a hard score of 1, and failure a lower one. The last four compare with another skill: a higher, lower or
equal score, or a success of only one of the two."""
CHANGES: tuple[Show, ...] = ("won", "lost", "tied", "flipped")
Sort = Literal["item_id", "score", "other", "difference", "status", "tokens", "seconds"]

MARK = 16
"""Digits of a fingerprint in a listing: enough to distinguish items, in a quarter of the memory."""
_LISTED = (
    "item_id", "item_fingerprint", "run", "status", "error", "hard", "soft", "prompt_tokens", "completion_tokens",
    "seconds", "stored",
)  # fmt: skip
_TEXTS = ("messages", "answer", "feedback")
_READERS = 2
"""Number of parts read concurrently; more would use more memory and save little time."""

_NOTHING: pa.Table = pa.schema(
    [
        *((name, pa.string()) for name in ("item_id", "mark", "status", "error")),
        *((name, pa.float64()) for name in ("hard", "soft", "seconds")),
        ("tokens", pa.int64()),
        ("stored", pa.timestamp("us", tz="UTC")),
        ("part", pa.int32()),
        ("row", pa.int32()),
    ]
).empty_table()


class Variant(NamedTuple):
    """A full key of a partition's rollouts; most partitions have only one."""

    key: RolloutKey
    rows: int
    run: str
    """One of the runs that stored them."""


class Listing(NamedTuple):
    """Rollouts without transcripts, one row per item in the order of the IDs."""

    rows: pa.Table
    """With `mark`, the first digits of the fingerprint; `tokens` read and written; `part`, the index in `parts`; and
    `row`, the row in the part."""
    parts: tuple[str, ...]
    """Keys of the parts."""


class ListedRollout(NamedTuple):
    """A row of a page."""

    item_id: str
    mark: str
    """First digits of the item's fingerprint."""
    status: str
    error: str
    hard: float | None
    score: float | None
    """The gate metric."""
    tokens: int
    seconds: float
    task_types: str
    """JSON list."""
    other_status: str | None
    """None, like the next two fields, without another skill or its rollout of the item."""
    other_score: float | None
    difference: float | None

    @property
    def types(self) -> list[str]:
        return [*json.loads(self.task_types)]


class Counts(NamedTuple):
    """Numbers of a listing's items."""

    items: int
    successes: int
    failures: int
    statuses: Mapping[str, int]
    changes: Mapping[str, int]
    """By CHANGES."""


class RolloutBrowser:
    """The rollouts below `<prefix>trajectories/`."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    def variants(self, partition: Partition) -> list[Variant]:
        """Return the keys of a partition's rollouts, the most frequent one first."""
        names = ["run", *IDENTITY]

        def read(file: pq.ParquetFile) -> pa.Table:
            return file.read(columns=names, use_threads=False).group_by(names).aggregate([([], "count_all")])

        tables = self._each(keys.trajectories(self._prefix, *partition), read).values()
        if not tables:
            return []
        found = pa.concat_tables(tables).group_by([*IDENTITY]).aggregate([("count_all", "sum"), ("run", "one")])
        by_size = [("count_all_sum", "descending"), *((name, "ascending") for name in IDENTITY)]
        fields = partition._asdict()
        return [
            Variant(RolloutKey.model_validate(fields | row, extra="ignore"), row["count_all_sum"], row["run_one"])
            for row in found.sort_by(by_size).to_pylist()
        ]

    def listing(self, key: RolloutKey, run: str = "", items: pa.Table | None = None, *, alone: bool = False) -> Listing:
        """Return one row per item: the first stored rollout with a score, or else the last failure.

        Args:
            run: the run whose failures count; if empty, all runs'.
            items: `id` and `fingerprint` of the items; if None, all items.
            alone: whether only the run's rollouts count.
        """

        def read(file: pq.ParquetFile) -> pa.Table:
            table = _matching(file, key, _LISTED)
            if run:
                own = pc.equal(table["run"], run)
                table = table.filter(own if alone else pc.or_(has_score(table), own))
            tokens = pc.add(table["prompt_tokens"], table["completion_tokens"])
            return table.append_column("tokens", tokens).append_column("mark", _marks(table["item_fingerprint"]))

        by_part = self._each(key.partition(self._prefix), read)
        parts = [
            table.append_column("part", pa.repeat(number, len(table)))
            .select(_NOTHING.column_names)
            .cast(_NOTHING.schema)
            for number, table in enumerate(by_part.values())
        ]
        rows = pa.concat_tables([_NOTHING, *parts])
        if items is not None:
            places = pc.index_in(rows["item_id"], value_set=items["id"])
            same = pc.equal(_marks(items["fingerprint"]).take(places), rows["mark"])
            rows = rows.filter(pc.fill_null(same, False))
        return Listing(_one_per_item(rows), tuple(by_part))

    def tries(self, key: RolloutKey, mark: str) -> list[RolloutRow]:
        """Return all complete rollouts of an item, first those with a score, otherwise in the order of storing."""

        def read(file: pq.ParquetFile) -> pa.Table:
            table = _matching(file, key, ["item_fingerprint"])
            return _whole(file, table["row"].filter(pc.equal(_marks(table["item_fingerprint"]), mark)).to_pylist())

        tables = self._each(key.partition(self._prefix), read).values()
        rows = [row for table in tables for row in rollouts_from_table(table)]
        return sorted(rows, key=lambda row: (row.rollout.score is None, row.stored))

    def search(self, listing: Listing, places: pa.Array, text: str, max_bytes: int) -> tuple[pa.Array, int]:
        """Return the rows of a listing whose transcripts contain a string, and the number of searched rows.

        The search ignores case and excludes the skill itself. It stops after `max_bytes` of text, before compression.

        Raises:
            ObjectMissing: the parts of the listing were merged since.
        """
        rows = listing.rows.select(["part", "row"]).take(places).append_column("place", [places])
        searched, left = 0, max_bytes
        matches: list[int] = []
        for part in pc.unique(rows["part"]).sort().to_pylist():
            if left <= 0:
                break
            here = rows.filter(pc.equal(rows["part"], part))
            placed = dict(zip(here["row"].to_pylist(), here["place"].to_pylist(), strict=True))
            file = open_parquet(self._store, listing.parts[part])
            for group, first, inside in _grouped(file, sorted(placed)):
                if left <= 0:
                    break
                left -= _text_bytes(file, group)
                searched += len(inside)
                matches += (placed[row] for row in _rows_with_text(file, group, first, inside, text))
        return pa.array(sorted(matches), pa.uint64()), searched

    def _each(self, folder: str, read: Callable[[pq.ParquetFile], pa.Table]) -> dict[str, pa.Table]:
        return read_parts(self._store, folder, read, readers=_READERS)


def listed_try(tries: Sequence[RolloutRow], run: str = "") -> RolloutRow | None:
    """Return the one of an item's tries that a listing contains, if any."""
    failed = [row for row in tries if row.rollout.score is None and run in ("", row.run)]
    scored = (row for row in tries if row.rollout.score is not None)
    return next(scored, failed[-1] if failed else None)


def with_scores(rows: pa.Table, metric: Metric, mixed_weight: float) -> pa.Table:
    """Return the rows with the gate metric as `score`."""
    weight = {"hard": 0.0, "soft": 1.0, "mixed": mixed_weight}[metric]
    score = pc.add(pc.multiply(rows["hard"], 1.0 - weight), pc.multiply(rows["soft"], weight))
    return rows.append_column("score", score)


def with_task_types(rows: pa.Table, items: pa.Table | None) -> pa.Table:
    """Return the rows with the `task_types` of their items as JSON lists."""
    if items is None:
        return rows.append_column("task_types", pa.repeat("[]", len(rows)))
    places = pc.index_in(rows["item_id"], value_set=items["id"])
    return rows.append_column("task_types", pc.fill_null(items["task_types"].take(places), "[]"))


def with_other(rows: pa.Table, other: pa.Table | None) -> pa.Table:
    """Return the rows with status and score of another skill on the same items, and the difference."""
    other = rows.slice(0, 0) if other is None else other
    places = pc.index_in(rows["item_id"], value_set=other["item_id"])
    same = pc.equal(other["mark"].take(places), rows["mark"])
    places = pc.if_else(same, places, pa.scalar(None, pa.int32()))
    status, hard, score = (other[name].take(places) for name in ("status", "hard", "score"))
    difference = pc.subtract(rows["score"], score)
    columns = {"other_status": status, "other_hard": hard, "other_score": score, "difference": difference}
    for name, values in columns.items():
        rows = rows.append_column(name, values)
    return rows


def filter_rows(
    rows: pa.Table, show: Show = "all", status: Status | None = None, task_type: str = "", text: str = ""
) -> pa.Array:
    """Return the places of the matching rows, in their order; `text` is part of the ID or error, ignoring case."""
    if not rows.num_rows:
        # pyarrow before 26.0.1 crashes on columns without chunks.
        return pa.array([], pa.uint64())
    masks = [_masks(rows)[show]]
    if status is not None:
        masks.append(pc.equal(rows["status"], status.value))
    if task_type:
        having = [texts for texts in pc.unique(rows["task_types"]).to_pylist() if task_type in json.loads(texts)]
        masks.append(pc.is_in(rows["task_types"], value_set=pa.array(having, pa.string())))
    if text:
        in_id, in_error = (pc.match_substring(rows[name], text, ignore_case=True) for name in ("item_id", "error"))
        masks.append(pc.or_(in_id, in_error))
    return pc.indices_nonzero(reduce(pc.and_, (pc.fill_null(mask, False) for mask in masks)))


def sort_rows(rows: pa.Table, places: pa.Array, order: Sort, *, descending: bool) -> pa.Array:
    """Return places of rows in another order; rows without a value come last, and equal ones keep their order."""
    values = rows["other_score" if order == "other" else order].take(places)
    direction = "descending" if descending else "ascending"
    # As a table, because sorting an array isn't stable.
    by = [("value", direction, "at_end")]
    return places.take(pc.sort_indices(pa.table({"value": values}), sort_keys=by))


def page(rows: pa.Table, places: pa.Array) -> list[ListedRollout]:
    table = rows.take(places)
    columns = (table[name].to_pylist() for name in ListedRollout._fields)
    return [ListedRollout(*row) for row in zip(*columns, strict=True)]


def counts(rows: pa.Table) -> Counts:
    statuses = {one["values"]: one["counts"] for one in pc.value_counts(rows["status"]).to_pylist()}
    shown = {show: int(pc.sum(mask).as_py() or 0) for show, mask in _masks(rows).items()}
    return Counts(
        items=len(rows),
        successes=shown["success"],
        failures=shown["failure"],
        statuses=dict(sorted(statuses.items(), key=lambda one: (-one[1], one[0]))),
        changes={change: shown[change] for change in CHANGES},
    )


def task_types(rows: pa.Table) -> list[str]:
    return sorted({name for texts in pc.unique(rows["task_types"]).to_pylist() for name in json.loads(texts)})


def _masks(rows: pa.Table) -> dict[Show, pa.ChunkedArray]:
    """Return the masks of the shown rows; null counts as false."""
    success, difference = pc.equal(rows["hard"], 1.0), rows["difference"]
    return {
        "all": pc.is_valid(rows["item_id"]),
        "success": success,
        "failure": pc.invert(success),
        "no_score": pc.is_null(rows["hard"]),
        "won": pc.greater(difference, 0.0),
        "lost": pc.less(difference, 0.0),
        "tied": pc.equal(difference, 0.0),
        "flipped": pc.xor(success, pc.equal(rows["other_hard"], 1.0)),
    }


def _matching(file: pq.ParquetFile, key: RolloutKey, columns: Sequence[str]) -> pa.Table:
    """Return columns of the rows with a key, plus `row`, each one's row in the part."""
    table = file.read(columns=[*columns, *IDENTITY], use_threads=False)
    table = table.append_column("row", pa.arange(0, len(table)).cast(pa.int32()))
    return table.select([*columns, "row"]).filter(same_key(key)(table))


def _marks(fingerprints: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.utf8_slice_codeunits(fingerprints, 0, MARK)


def _one_per_item(table: pa.Table) -> pa.Table:
    """Return each item's row of a listing, in the order of the IDs."""
    failed = pc.invert(has_score(table))
    stored = table["stored"].cast(pa.int64())
    # The first row with a score counts, or else the last one.
    late = pc.if_else(failed, pc.negate(stored), stored)
    ordered = pa.table(
        {"item_id": table["item_id"], "failed": failed.cast(pa.int8()), "late": late, "place": pa.arange(0, len(table))}
    )
    ordered = ordered.sort_by([(name, "ascending") for name in ordered.column_names])
    return table.take(ordered.group_by("item_id", use_threads=False).aggregate([("place", "first")])["place_first"])


def _grouped(file: pq.ParquetFile, rows: Sequence[int]) -> Iterator[tuple[int, int, list[int]]]:
    """Yield the row groups of these rows of a part, each with its first row and the rows in it."""
    first = 0
    for group in range(file.num_row_groups):
        last = first + file.metadata.row_group(group).num_rows
        inside = [row for row in rows if first <= row < last]
        if inside:
            yield group, first, inside
        first = last


def _whole(file: pq.ParquetFile, rows: Sequence[int]) -> pa.Table:
    tables = [file.schema_arrow.empty_table()]
    for group, first, inside in _grouped(file, rows):
        tables.append(file.read_row_group(group).take(pa.array([row - first for row in inside])))
    return pa.concat_tables(tables)


def _text_bytes(file: pq.ParquetFile, group: int) -> int:
    metadata = file.metadata.row_group(group)
    columns = map(metadata.column, range(metadata.num_columns))
    return sum(column.total_uncompressed_size for column in columns if column.path_in_schema.split(".")[0] in _TEXTS)


def _rows_with_text(file: pq.ParquetFile, group: int, first: int, rows: Sequence[int], text: str) -> Iterator[int]:
    """Yield the rows of a row group, among these, whose transcripts contain a string."""
    table = file.read_row_group(group, columns=list(_TEXTS))
    [batch] = table.take(pa.array([row - first for row in rows], pa.int64())).combine_chunks().to_batches()
    messages = batch["messages"].flatten()
    has = pc.and_(_has(messages.field("content"), text), pc.not_equal(messages.field("role"), "system"))
    places = {*pc.list_parent_indices(batch["messages"]).filter(has).to_pylist()}
    for name in ("answer", "feedback"):
        places.update(pc.indices_nonzero(pc.fill_null(_has(batch[name], text), False)).to_pylist())
    yield from (rows[place] for place in sorted(places))


def _has(column: pa.Array, text: str) -> pa.BooleanArray:
    return pc.match_substring(column, text, ignore_case=True)
