"""Cleanup of the trajectory table: merging a partition's parts, and dropping old rows and duplicates."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from typing import Any, NamedTuple

import pyarrow as pa

from skillopt_airflow.store import keys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.tables.parquet import current_parts, join_parquet, open_parquet, parts_of

LARGE_ROWS = 10_000
LARGE_BYTES = 64 * 1024 * 1024
"""Limit of a merged part before compression, which limits the task's memory."""
_ORIGIN = [
    *("run", "item_fingerprint", "skill_sha256", "settings_sha256", "image", "stored"),
    *("item_id", "status", "started"),
]
"""Columns that identify a write; rows that are equal in all of them are duplicates."""


class Part(NamedTuple):
    """The footer of a part."""

    key: str
    rows: int
    size: int
    """Bytes before compression."""
    columns: pa.Schema


class CleanupCounts(NamedTuple):
    """The outcome for one or more partitions; parts that are too young for a cleanup don't count."""

    parts_before: int = 0
    parts_after: int = 0
    rows_kept: int = 0
    rows_dropped: int = 0


def partitions(store: ObjectStore, prefix: str, benchmark: str) -> list[str]:
    parts = parts_of(store, keys.trajectories_of(prefix, benchmark))
    return sorted({f"{part.rpartition('/')[0]}/" for part in parts})


def compact(store: ObjectStore, partition: str, oldest: datetime | None, untouched: datetime) -> CleanupCounts:
    """Merge many parts into few large ones, without rows stored before `oldest` and without duplicates.

    Only parts written before `untouched` are merged, because no task has them open. Until the old parts are removed,
    rows exist twice. Readers count an item once, and after a killed cleanup the next one removes the duplicates.
    """
    dated = store.list_dated(partition)
    for key, written in dated.items():
        if keys.closing_part(key) in dated and written < untouched:
            store.delete(key)
    parts = [_part(store, key) for key in current_parts(sorted(dated)) if dated[key] < untouched]
    if len(parts) == 1 and oldest is None:
        return CleanupCounts(1, 1, parts[0].rows)
    kept = _kept(store, parts, oldest)
    return sum_counts([_merge(store, partition, group, kept) for group in _groups(parts)])


def sum_counts(counts: Sequence[CleanupCounts]) -> CleanupCounts:
    return CleanupCounts(*map(sum, zip(*counts, strict=True)))


def drop_old(store: ObjectStore, folder: str, oldest: datetime) -> int:
    """Remove the objects below a folder that were stored before `oldest`; return their number."""
    dropped = store.list_older(folder, oldest)
    for key in dropped:
        store.delete(key)
    return len(dropped)


def drop_corpora(store: ObjectStore, prefix: str, oldest: datetime) -> int:
    """Remove the corpora of all benchmarks that no run used since `oldest`; return their number."""
    folders = {f"{key.rpartition('/')[0]}/" for key in store.list_older(keys.corpora_of(prefix), oldest)}
    return sum(_drop_corpus(store, folder, oldest) for folder in sorted(folders))


def _drop_corpus(store: ObjectStore, folder: str, oldest: datetime) -> bool:
    """Remove a corpus unless a run used it meanwhile; return whether it was removed."""
    stored, old = store.list_keys(folder), store.list_older(folder, oldest)
    if stored != old:
        return False
    # The manifest is a corpus's last key. It's removed first, because a corpus without a manifest doesn't count.
    for key in reversed(stored):
        store.delete(key)
    return True


def _kept(store: ObjectStore, parts: Sequence[Part], oldest: datetime | None) -> Mapping[str, list[int]]:
    """Return the places of the rows to keep by part: the last one of each set of duplicates."""
    places: dict[tuple[Any, ...], tuple[str, int]] = {}
    for part in parts:
        origins = open_parquet(store, part.key).read(columns=_ORIGIN)
        times = origins["stored"].to_pylist()
        columns = (origins[name].cast(pa.string()).to_pylist() for name in _ORIGIN)
        for place, origin in enumerate(zip(*columns, strict=True)):
            if oldest is None or times[place] >= oldest:
                # Parts with different columns aren't merged, so each of them keeps its row.
                places[str(part.columns), *origin] = part.key, place
    kept: dict[str, list[int]] = {part.key: [] for part in parts}
    for key, place in places.values():
        kept[key].append(place)
    return kept


def _groups(parts: Sequence[Part]) -> list[list[Part]]:
    """Group parts with the same columns, so that each group fits into one part."""
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


def _merge(store: ObjectStore, partition: str, group: Sequence[Part], kept: Mapping[str, list[int]]) -> CleanupCounts:
    before, after = sum(part.rows for part in group), sum(len(kept[part.key]) for part in group)
    if len(group) == 1 and before == after:
        return CleanupCounts(1, 1, after, 0)
    if after:
        rows = (
            open_parquet(store, part.key).read().take(pa.array(sorted(kept[part.key]), pa.int64())) for part in group
        )
        name = sha256("\n".join(f"{part.key} {len(kept[part.key])}" for part in group).encode()).hexdigest()
        store.put_bytes(keys.part(partition, name), join_parquet(rows))
    for part in group:
        store.delete(part.key)
    return CleanupCounts(len(group), int(after > 0), after, before - after)


def _part(store: ObjectStore, key: str) -> Part:
    file = open_parquet(store, key)
    metadata = file.metadata
    size = sum(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
    return Part(key, metadata.num_rows, size, file.schema_arrow.remove_metadata())
