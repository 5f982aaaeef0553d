"""Stored rollouts for people: of all of a skill what is small, and of an item everything.

Of a part only the row groups are read that may have wanted rows, and of these only the columns that are asked for: what
a row group's statistics tell is not read at all. So a list needs no text, and an item no other item's part.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skillopt_airflow.core.errors import ObjectMissing, StoreUnavailable
from skillopt_airflow.store import keys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.parquet import RolloutRow, rollouts_from_table
from skillopt_airflow.store.parts import read_parts
from skillopt_airflow.store.rollout_partitions import Partition
from skillopt_airflow.store.rollout_table import RolloutKey, has_score
from skillopt_airflow.store.stored_parquet import opened, text_bounds

_IDENTITY = ("skill_sha256", "settings_sha256", "image")
"""Columns of a row that are a part of its key, besides those of the partition."""
_OF_ITEM = ("item_id", "item_fingerprint")
_NUMBERS = ("hard", "soft", "prompt_tokens", "completion_tokens", "seconds")
_LISTED = (*_OF_ITEM, "run", "status", "error", *_NUMBERS, "stored")
_TEXTS = ("messages", "answer", "feedback")
READERS = 2
"""Parts that are read at the same time: more would take more memory, and hardly less time."""
MARK = 16
"""Digits of a fingerprint that a listing has: enough to tell items apart, and a quarter of the memory."""
_ROWS_AT_ONCE = 256
"""Rows of a row group that are in memory together: one of before may be as large as its part."""

LISTED: pa.Schema = pa.schema(
    [
        *((name, pa.string()) for name in ("item_id", "mark", "status", "error")),
        *((name, pa.float64()) for name in ("hard", "soft", "seconds")),
        ("tokens", pa.int64()),
        ("stored", pa.timestamp("us", tz="UTC")),
        ("part", pa.int32()),
        ("row", pa.int32()),
    ]
)
"""One row an item, in the order of the ids. mark is the beginning of the fingerprint, tokens are those read and
written, part is the place among `Listing.parts`, row that in the part."""

T = TypeVar("T")

# Arrow's own pool keeps what each thread once had: 60 MB more after a search than the system's.
pa.set_memory_pool(pa.system_memory_pool())


class Variant(NamedTuple):
    """The part of the key that the rollouts of a partition may differ in: most often there is one."""

    key: RolloutKey
    rows: int
    run: str
    """A run that stored some of them."""


class Listing(NamedTuple):
    """Rollouts without what was said."""

    rows: pa.Table
    """As LISTED."""
    parts: tuple[str, ...]
    """Keys of the parts that they are in."""


class Said(NamedTuple):
    """The result of a search in what was said."""

    places: pa.Array
    """Of the rows that have the text, in their order."""
    searched: int
    """Rollouts that were read, of those that were to be searched."""


class RolloutBrowser:
    """The rollouts below `<prefix>trajectories/`."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    def variants(self, partition: Partition) -> list[Variant]:
        """Return the keys of a partition's rollouts, the one with most rows first."""
        read = self._each(keys.trajectories(self._prefix, *partition), _origins)
        rows: defaultdict[tuple[str, ...], int] = defaultdict(int)
        runs: dict[tuple[str, ...], str] = {}
        for origins in read.values():
            for (run, *identity), count in origins.items():
                rows[*identity] += count
                runs[*identity] = run
        by_size = sorted(rows, key=lambda identity: (-rows[identity], identity))
        return [Variant(_key(partition, identity), rows[identity], runs[identity]) for identity in by_size]

    def listing(self, key: RolloutKey, run: str = "", items: pa.Table | None = None, *, alone: bool = False) -> Listing:
        """Return a row an item: the rollout with a score that was stored first, or else the failure stored last.

        Args:
            key: of the rollouts.
            run: whose failures count; those of every run if it is empty.
            items: `id` and `fingerprint` of the items that count; those of every item if None.
            alone: whether the run's own rollouts are all that count.
        """
        wanted = {"run": run} if alone else {}

        def read(file: pq.ParquetFile) -> pa.Table:
            found = _matching(file, key, _LISTED, wanted)
            if run:
                found = found.filter(pc.or_(has_score(found), pc.equal(found["run"], run)))
            return _listed(found)

        found = self._each(key.partition(self._prefix), read)
        tables = [table.append_column("part", _all(number, table)) for number, table in enumerate(found.values())]
        together = pa.concat_tables(
            [LISTED.empty_table(), *(table.select(LISTED.names).cast(LISTED) for table in tables)]
        )
        if items is not None:
            # Not part by part, since each look for items makes a table of all of them.
            together = together.filter(_known(together, items))
        return Listing(_one_an_item(together), tuple(found))

    def tries(self, key: RolloutKey, item_id: str) -> list[RolloutRow]:
        """Return all rollouts of an item, whole: first those with a score, each kind in the order of storing."""

        def read(file: pq.ParquetFile) -> pa.Table:
            return _whole(file, _matching(file, key, ["item_id"], {"item_id": item_id})["row"].to_pylist())

        tables = list(self._each(key.partition(self._prefix), read).values())
        rows = [row for table in tables for row in rollouts_from_table(table)]
        return sorted(rows, key=lambda row: (row.rollout.score is None, row.stored))

    def item_id(self, key: RolloutKey, mark: str) -> str | None:
        """Return the id of an item by the mark of its fingerprint; None if there is no rollout of it."""

        def read(file: pq.ParquetFile) -> list[str]:
            found = _matching(file, key, _OF_ITEM)
            return [*found["item_id"].filter(pc.equal(_marks(found["item_fingerprint"]), mark)).to_pylist()]

        found = [name for names in self._each(key.partition(self._prefix), read).values() for name in names]
        return found[0] if found else None

    def saying(self, listing: Listing, places: pa.Array, text: str, most_bytes: int) -> Said:
        """Return which of some rows of a listing have a text in what was said, in any case of letters.

        The skill itself is not searched. It reads row groups until it had so many bytes of texts, before compression.

        Raises:
            StoreUnavailable: the parts of the listing were merged since.
        """
        rows = listing.rows.select(["part", "row"]).take(places).append_column("place", [places])
        try:
            return self._saying(listing.parts, rows, text, most_bytes)
        except ObjectMissing:
            raise StoreUnavailable("the rollouts were merged into larger files while they were searched") from None

    def _saying(self, parts: Sequence[str], rows: pa.Table, text: str, most_bytes: int) -> Said:
        """Search rows, with their part, their row in it and their place in the listing, for a text."""
        searched, left = 0, most_bytes
        found: list[int] = []
        for part in pc.unique(rows["part"]).sort().to_pylist():
            if left <= 0:
                break
            here = rows.filter(pc.equal(rows["part"], part))
            places = dict(zip(here["row"].to_pylist(), here["place"].to_pylist(), strict=True))
            file = opened(self._store, parts[part])
            for group, first, inside in _grouped(file, sorted(places)):
                if left <= 0:
                    break
                left -= _text_bytes(file, group)
                searched += len(inside)
                found += (places[row] for row in _rows_saying(file, group, first, inside, text))
        return Said(pa.array(sorted(found), pa.uint64()), searched)

    def _each(self, folder: str, read: Callable[[pq.ParquetFile], T]) -> dict[str, T]:
        return read_parts(self._store, folder, read, readers=READERS)


def release_memory() -> None:
    """Give back the memory that Arrow keeps when a list is shown: the process may not read another one for hours."""
    pa.default_memory_pool().release_unused()


def counting(tries: Sequence[RolloutRow], run: str = "") -> RolloutRow | None:
    """Return the one of an item's tries that a listing has; None if there is none."""
    failed = [row for row in tries if row.rollout.score is None and run in ("", row.run)]
    scored = (row for row in tries if row.rollout.score is not None)
    return next(scored, failed[-1] if failed else None)


def _key(partition: Partition, identity: Sequence[str]) -> RolloutKey:
    fields = partition._asdict() | dict(zip(_IDENTITY, identity, strict=True))
    return RolloutKey.model_validate(fields, extra="ignore")


def _origins(file: pq.ParquetFile) -> Mapping[tuple[str, ...], int]:
    """Return the rows of a part by their run and the rest of their key."""
    names, counted = ("run", *_IDENTITY), defaultdict[tuple[str, ...], int](int)
    for group in range(file.num_row_groups):
        bounds = [text_bounds(file, group, name) for name in names]
        alike = [pair[0] for pair in bounds if pair is not None and pair[0] == pair[1]]
        if len(alike) == len(names):
            counted[tuple(alike)] += file.metadata.row_group(group).num_rows
            continue
        table = file.read_row_group(group, columns=list(names))
        for row in zip(*(table[name].to_pylist() for name in names), strict=True):
            counted[row] += 1
    return counted


def _open_columns(file: pq.ParquetFile, group: int, wanted: Mapping[str, str]) -> list[str] | None:
    """Return the columns that have to be read to find wanted values in a row group; None if it has no such row."""
    unsettled = []
    for column, value in wanted.items():
        bounds = text_bounds(file, group, column)
        if bounds is not None and not bounds[0] <= value <= bounds[1]:
            return None
        if bounds != (value, value):
            unsettled.append(column)
    return unsettled


def _matching(
    file: pq.ParquetFile, key: RolloutKey, columns: Sequence[str], wanted: Mapping[str, str] = MappingProxyType({})
) -> pa.Table:
    """Return columns of the rows of a key that have the wanted texts, with the row in the part of each."""
    values = {name: str(getattr(key, name)) for name in _IDENTITY} | dict(wanted)
    sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    unsettled = [_open_columns(file, group, values) for group in range(file.num_row_groups)]
    kept = [group for group, names in enumerate(unsettled) if names is not None]
    more = {name for names in unsettled for name in names or ()}
    # All at once: what lies side by side in two row groups is fetched together.
    table = file.read_row_groups(kept, columns=[*columns, *sorted(more - {*columns})], use_threads=False)
    places = [pa.arange(sum(sizes[:group]), sum(sizes[: group + 1])).cast(pa.int32()) for group in kept]
    table = table.append_column("row", pa.chunked_array(places, pa.int32()))
    for name in sorted(more):
        table = table.filter(pc.equal(table[name], values[name]))
    return table.select([*columns, "row"])


def _known(table: pa.Table, items: pa.Table) -> pa.ChunkedArray:
    """Return which rows, with the columns of LISTED, are of these very items."""
    places = pc.index_in(table["item_id"], value_set=items["id"])
    return pc.fill_null(pc.equal(_marks(items["fingerprint"]).take(places), table["mark"]), False)


def _marks(fingerprints: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.utf8_slice_codeunits(fingerprints, 0, MARK)


def _all(value: int, table: pa.Table) -> pa.Array:
    return pa.repeat(pa.scalar(value, pa.int32()), len(table))


def _listed(table: pa.Table) -> pa.Table:
    """Return the columns of LISTED but for the part."""
    tokens = pc.add(table["prompt_tokens"], table["completion_tokens"])
    names = [name for name in LISTED.names if name in table.column_names]
    return table.select(names).append_column("tokens", tokens).append_column("mark", _marks(table["item_fingerprint"]))


def _one_an_item(table: pa.Table) -> pa.Table:
    """Return the row of each item that counts, in the order of the ids."""
    failed = pc.invert(has_score(table))
    stored = table["stored"].cast(pa.int64())
    # Of rows with a score the first counts, of others the last.
    late = pc.if_else(failed, pc.negate(stored), stored)
    ordered = pa.table({"item_id": table["item_id"], "failed": failed.cast(pa.int8()), "late": late})
    by = [(name, "ascending") for name in ordered.column_names]
    places = pc.sort_indices(ordered, by)
    ids = table["item_id"].take(places).combine_chunks()
    new = pc.not_equal(ids.slice(1), ids.slice(0, max(0, len(ids) - 1)))
    first = pa.concat_arrays([pa.array([True] * min(1, len(ids)), pa.bool_()), new])
    return table.take(places.filter(first))


def _grouped(file: pq.ParquetFile, rows: Sequence[int]) -> Iterator[tuple[int, int, list[int]]]:
    """Yield the row groups that some rows of a part are in, each with its first row and those in it."""
    first = 0
    for group in range(file.num_row_groups):
        last = first + file.metadata.row_group(group).num_rows
        inside = [row for row in rows if first <= row < last]
        if inside:
            yield group, first, inside
        first = last


def _whole(file: pq.ParquetFile, rows: Sequence[int]) -> pa.Table:
    """Return some rows of a part with all their columns."""
    tables = [file.schema_arrow.empty_table()]
    for group, first, inside in _grouped(file, rows):
        for batch in file.iter_batches(_ROWS_AT_ONCE, row_groups=[group]):
            here = [row - first for row in inside if first <= row < first + len(batch)]
            if here:
                tables.append(pa.Table.from_batches([batch]).take(pa.array(here)))
            first += len(batch)
            if first > inside[-1]:
                break
    return pa.concat_tables(tables)


def _text_bytes(file: pq.ParquetFile, group: int) -> int:
    found = file.metadata.row_group(group)
    columns = map(found.column, range(found.num_columns))
    return sum(column.total_uncompressed_size for column in columns if column.path_in_schema.split(".")[0] in _TEXTS)


def _rows_saying(file: pq.ParquetFile, group: int, first: int, rows: Sequence[int], text: str) -> Iterator[int]:
    """Yield those of some rows of a row group that have a text in what was said."""
    for batch in file.iter_batches(_ROWS_AT_ONCE, row_groups=[group], columns=list(_TEXTS)):
        inside = [row for row in rows if first <= row < first + len(batch)]
        here = batch.take(pa.array([row - first for row in inside], pa.int64()))
        said = here["messages"].flatten()
        has = pc.and_(_has(said.field("content"), text), pc.not_equal(said.field("role"), "system"))
        found = {*pc.list_parent_indices(here["messages"]).filter(has).to_pylist()}
        for name in ("answer", "feedback"):
            found.update(pc.indices_nonzero(pc.fill_null(_has(here[name], text), False)).to_pylist())
        yield from (inside[place] for place in sorted(found))
        first += len(batch)


def _has(column: pa.Array, text: str) -> pa.BooleanArray:
    return pc.match_substring(column, text, ignore_case=True)
