"""The parts of a partition: read together, and merged into fewer ones beside those who read.

Who reads while parts are merged finds every row once: a merged part names those that it replaces, which do not count
where they are still there, and a listing comes to it after them. Of two that have some of the same parts, until one of
their writers takes his back, only that one counts whose rows are nowhere else. Parts with other columns, of another
version of the project, are merged apart: nothing that this version does not know is lost.
"""

import json
from collections.abc import Callable, MutableMapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from skillopt_airflow.core.errors import Conflict, ObjectMissing, StoreUnavailable
from skillopt_airflow.store import keys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.parquet import to_parquet
from skillopt_airflow.store.stored_parquet import opened

READERS = 8
FIRST_PAUSE = 0.1
"""Seconds until a partition whose parts are being merged is looked at again; the pauses double."""
LONGEST_PAUSE = 2.0
PATIENCE = 30.0
"""Seconds after which it is not looked at again."""

FEW = 8
"""So many parts of a small stage need no merging: less time than it takes would be saved."""
WORTH_A_FILE = 1000
"""Rows for each of which a larger stage may have a part, and one more."""
LARGE_ROWS = 10_000
LARGE_BYTES = 64 * 1024 * 1024
"""Limits of a merged part, before compression, so that a task that merges needs little memory."""

LONGEST_MERGE = timedelta(hours=1)
"""Time after which a merged part stays: who wrote it has looked for others, or has died."""

_REPLACES = b"replaces"

T = TypeVar("T")


class Part(NamedTuple):
    """A part by its footer."""

    key: str
    rows: int
    size: int
    """Bytes before compression."""
    columns: pa.Schema
    replaces: frozenset[str]
    """Names of the parts whose rows it has; where these are still there, they do not count."""

    @property
    def name(self) -> str:
        """Return the last part of the key."""
        return self.key.rpartition("/")[2]


def parts_of(store: ObjectStore, partition: str) -> list[str]:
    """Return the keys of a partition's parts."""
    return [key for key in store.list_keys(partition) if key.endswith(".parquet")]


def read_each(
    store: ObjectStore,
    partition: str,
    read: Callable[[pq.ParquetFile], T],
    known: MutableMapping[str, tuple[Part, T]] | None = None,
    *,
    readers: int = READERS,
) -> list[tuple[Part, T]]:
    """Return the parts that count, each with what is read of it; a merge removes parts one by one, so it tries again.

    Args:
        store: the store.
        partition: its parts.
        read: what is wanted of one.
        known: what was read before, by key, since a part never changes; it is brought up to date.
        readers: parts that are read at the same time.

    Raises:
        StoreUnavailable: parts vanished between listing and reading for PATIENCE seconds.
    """
    seen = {} if known is None else known
    retrying = Retrying(
        stop=stop_after_delay(PATIENCE),
        wait=wait_exponential(FIRST_PAUSE, max=LONGEST_PAUSE),
        retry=retry_if_exception_type(ObjectMissing),
    )

    def look_at(key: str) -> tuple[Part, T]:
        if key not in seen:
            file = opened(store, key)
            seen[key] = _part(key, file), read(file)
        return seen[key]

    def look() -> list[tuple[Part, T]]:
        listed = parts_of(store, partition)
        for key in seen.keys() - listed:
            seen.pop(key, None)
        found = _each(look_at, listed, readers)
        parts = [part for part, _ in found]
        gone = _not_counting(parts, parts)
        return [(part, read) for part, read in found if part.name not in gone]

    try:
        return list(retrying(look))
    except RetryError:
        raise StoreUnavailable(
            f"{store.address(partition)}: its parts change faster than they can be read; try again"
        ) from None


def read_parts(
    store: ObjectStore,
    partition: str,
    read: Callable[[pq.ParquetFile], T],
    known: MutableMapping[str, tuple[Part, T]] | None = None,
) -> list[T]:
    """Return what is read of each part that counts; raise as `read_each`."""
    return [found for _, found in read_each(store, partition, read, known)]


def merge_parts(store: ObjectStore, partition: str, rows: int = 0) -> None:
    """Make large parts of small ones if there are many; somebody else's merge of them is as good.

    Args:
        store: the store.
        partition: its parts.
        rows: as far as they are known, the rows of a stage in it.
    """
    few = FEW if rows < WORTH_A_FILE else 1 + rows // WORTH_A_FILE
    if len(parts_of(store, partition)) <= few:
        return
    with suppress(Conflict, ObjectMissing):
        _merge(store, partition, counted(store, partition))


def merge_these(store: ObjectStore, partition: str, written: Sequence[str]) -> None:
    """Make large parts of these, which are the caller's own."""
    if len(written) > 1:
        with suppress(Conflict, ObjectMissing):
            _merge(store, partition, [_part(key, opened(store, key)) for key in written])


def counted(store: ObjectStore, partition: str) -> list[Part]:
    """Return the parts whose rows count, after what a merge that died long ago left behind is removed.

    Not what one of now leaves: it may still find that somebody else merges some of the same parts, and take its own
    back, so that these count again.

    Raises:
        ObjectMissing: somebody else merges them.
    """
    parts = _each(lambda key: _part(key, opened(store, key)), parts_of(store, partition), READERS)
    gone = _not_counting(parts, parts)
    if gone:
        old = set(store.list_older(partition, datetime.now(UTC) - LONGEST_MERGE))
        left = _not_counting(parts, [part for part in parts if part.key in old])
        _each(store.delete, [part.key for part in parts if part.name in left], READERS)
    return [part for part in parts if part.name not in gone]


def groups_of(parts: Sequence[Part]) -> list[list[Part]]:
    """Divide parts into groups with the same columns, each small enough to be one part."""
    groups: list[list[Part]] = []
    for part in sorted(parts, key=lambda part: str(part.columns)):
        group = groups[-1] if groups else []
        fits = (
            group
            and group[0].columns == part.columns
            and sum(one.rows for one in group) + part.rows <= LARGE_ROWS
            and sum(one.size for one in group) + part.size <= LARGE_BYTES
        )
        if fits:
            group.append(part)
        else:
            groups.append([part])
    return groups


def replace_parts(store: ObjectStore, partition: str, group: Sequence[Part], rows: pa.Table) -> None:
    """Write the rows of a group of parts as one, then remove the group.

    Raises:
        Conflict: somebody else merged the same parts, or merges some of them; nothing has changed then.
    """
    if len(rows):
        # What a merge that died has replaced is still there, and would count again without the part that says so.
        listed = {key.rpartition("/")[2] for key in parts_of(store, partition)}
        names = sorted({part.name for part in group} | (_replaced(group) & listed))
        merged, key = rows.replace_schema_metadata({_REPLACES: json.dumps(names)}), keys.merged_part(partition, names)
        store.create(key, to_parquet(merged))
        if _is_merged_otherwise(store, partition, group, key):
            store.delete(key)
            raise Conflict(f"{store.address(partition)}: somebody else merges some of these parts with others")
    _each(store.delete, [part.key for part in group], READERS)


def _is_merged_otherwise(store: ObjectStore, partition: str, group: Sequence[Part], key: str) -> bool:
    """Return whether somebody else has merged some of the parts, or is about to, apart from what `key` has.

    Who asks has written that first, so of two at least one sees the other. If both do, the parts stay as they are.
    """
    listed, mine = parts_of(store, partition), {part.key for part in group}
    if not mine.issubset(listed):
        return True
    names = {part.name for part in group}
    others = [other for other in listed if keys.is_merged(other) and other not in mine and other != key]
    try:
        return any(names & _part(other, opened(store, other)).replaces for other in others)
    except ObjectMissing:
        return True


def rows_of(store: ObjectStore, group: Sequence[Part]) -> pa.Table:
    """Return all rows of a group of parts."""
    tables = [opened(store, part.key).read().replace_schema_metadata(None) for part in group]
    return pa.concat_tables(tables)


def _merge(store: ObjectStore, partition: str, parts: Sequence[Part]) -> None:
    for group in groups_of(parts):
        if len(group) > 1:
            replace_parts(store, partition, group, rows_of(store, group))


def _each(work: Callable[[str], T], found: Sequence[str], readers: int) -> list[T]:
    """Return what a work returns of each key; one alone is read in less time than a thread begins."""
    if len(found) == 1:
        return [work(found[0])]
    with ThreadPoolExecutor(readers) as pool:
        return list(pool.map(work, found))


def _part(key: str, file: pq.ParquetFile) -> Part:
    metadata, columns = file.metadata, file.schema_arrow
    size = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
    replaces = json.loads((columns.metadata or {}).get(_REPLACES, b"[]"))
    return Part(key, metadata.num_rows, size, columns.remove_metadata(), frozenset(replaces))


def _replaced(parts: Sequence[Part]) -> frozenset[str]:
    return frozenset(name for part in parts for name in part.replaces)


def _not_counting(parts: Sequence[Part], merged: Sequence[Part]) -> frozenset[str]:
    """Return the names of parts whose rows others have, as far as these merged ones of them tell."""
    needless = _superfluous(parts)
    replaced = _replaced([part for part in merged if part.name not in needless])
    return replaced | (needless & {part.name for part in merged})


def _superfluous(parts: Sequence[Part]) -> frozenset[str]:
    """Return the names of merged parts beside others that have some of the same rows; all their rows are there too."""
    there, replaced, needless = {part.name for part in parts}, _replaced(parts), set[str]()
    merged = [part for part in parts if part.replaces and part.name not in replaced]
    for part in merged:
        others = _replaced([other for other in merged if other is not part and other.name not in needless])
        if part.replaces & others and part.replaces - others <= there:
            needless.add(part.name)
    return frozenset(needless)
