"""Keep the trajectory table small: merge a partition's parts, and drop old rows and duplicates."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import pyarrow as pa

from skillopt_airflow.core.errors import Conflict, ObjectMissing
from skillopt_airflow.store import keys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.parts import Part, counted, groups_of, parts_of, replace_parts, rows_of
from skillopt_airflow.store.stored_parquet import opened

_ORIGIN = [
    *("run", "item_fingerprint", "skill_sha256", "settings_sha256", "image", "stored"),
    *("item_id", "status", "started"),
]
"""Columns in which two rows differ unless they are one write."""


class Cleaned(NamedTuple):
    """The outcome for one or more partitions; rows of parts that were left as they are do not count."""

    parts_before: int = 0
    parts_after: int = 0
    rows_kept: int = 0
    rows_dropped: int = 0

    def __add__(self, other: object) -> "Cleaned":
        if not isinstance(other, Cleaned):
            return NotImplemented
        return Cleaned(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


def partitions(store: ObjectStore, prefix: str, benchmark: str) -> list[str]:
    """Return the partitions of a benchmark's trajectories, each with a slash at its end."""
    parts = parts_of(store, keys.trajectories_of(prefix, benchmark))
    return sorted({f"{part.rpartition('/')[0]}/" for part in parts})


def compact(store: ObjectStore, partition: str, oldest: datetime | None) -> Cleaned:
    """Make few large parts of the partition's, without the rows stored before `oldest` and without duplicates.

    Parts that others write meanwhile are left alone, and so is a partition that somebody else merges.
    """
    try:
        parts = counted(store, partition)
        if len(parts) == 1 and oldest is None:
            return Cleaned(1, 1)
        kept = _kept(store, parts, oldest)
        total = Cleaned()
        for group in groups_of(parts):
            total += _merge(store, partition, group, kept)
    except (Conflict, ObjectMissing):
        found = len(parts_of(store, partition))
        return Cleaned(found, found)
    return total


def drop_old(store: ObjectStore, folder: str, oldest: datetime) -> int:
    """Remove what was stored below a folder before `oldest`; return how many objects those were."""
    dropped = store.list_older(folder, oldest)
    for key in dropped:
        store.delete(key)
    return len(dropped)


def drop_corpora(store: ObjectStore, prefix: str, oldest: datetime) -> int:
    """Remove the corpora, of whatever benchmark, that no run used since `oldest`; return their number."""
    folders = {keys.corpus_folder(key) for key in store.list_older(keys.corpora_of(prefix), oldest)}
    return sum(_drop_corpus(store, folder, oldest) for folder in sorted(folders))


def _drop_corpus(store: ObjectStore, folder: str, oldest: datetime) -> bool:
    """Return whether a corpus was removed: no run used it, by now."""
    stored, old = store.list_keys(folder), store.list_older(folder, oldest)
    if stored != old:
        return False
    # The manifest is the last key of a corpus and goes first: without it, what is left counts as not stored.
    for key in reversed(stored):
        store.delete(key)
    return True


def _kept(store: ObjectStore, parts: Sequence[Part], oldest: datetime | None) -> Mapping[str, list[int]]:
    """Return the places of the rows to keep by part: the last of those that are one write."""
    places: dict[tuple[Any, ...], tuple[str, int]] = {}
    for part in parts:
        origins = opened(store, part.key).read(columns=_ORIGIN)
        young = [True] * part.rows if oldest is None else [stored >= oldest for stored in origins["stored"].to_pylist()]
        columns = (origins[name].cast(pa.string()).to_pylist() for name in _ORIGIN)
        for place, origin in enumerate(zip(*columns, strict=True)):
            if young[place]:
                # Of equal rows, one write of a part of before may be in a part of each kind of columns.
                places[str(part.columns), *origin] = part.key, place
    kept: dict[str, list[int]] = {part.key: [] for part in parts}
    for key, place in places.values():
        kept[key].append(place)
    return kept


def _merge(store: ObjectStore, partition: str, group: Sequence[Part], kept: Mapping[str, list[int]]) -> Cleaned:
    """Make a group of parts one, of the rows to keep."""
    before, after = sum(part.rows for part in group), sum(len(kept[part.key]) for part in group)
    if len(group) == 1 and before == after:
        return Cleaned(1, 1, after, 0)
    tables = [rows_of(store, [part]).take(pa.array(sorted(kept[part.key]), pa.int64())) for part in group]
    replace_parts(store, partition, group, pa.concat_tables(tables))
    return Cleaned(len(group), int(after > 0), after, before - after)
