"""Keep the trajectory table small: merge a partition's parts, and drop old rows."""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple
from uuid import uuid4

import pyarrow as pa

from skillopt_airflow.core.errors import ObjectMissing
from skillopt_airflow.store import keys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.parquet import from_parquet, to_parquet
from skillopt_airflow.store.rollout_table import parts_of

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
    """Make the partition's parts one, without the rows stored before `oldest` and without duplicates.

    Parts with other columns, of another version of the project, become a part of their own: nothing that this version
    does not know is lost. The merged parts are written before the others go: who reads meanwhile finds rows twice,
    never too few. Parts that others write meanwhile are left alone, and so is a partition that somebody else compacts.
    """
    parts = parts_of(store, partition)
    if len(parts) == 1 and oldest is None:
        return Cleaned(1, 1)
    by_columns: dict[pa.Schema, dict[str, pa.Table]] = {}
    try:
        for part in parts:
            table = from_parquet(store.get_bytes(part))
            by_columns.setdefault(table.schema, {})[part] = table
    except ObjectMissing:
        return Cleaned(len(parts), len(parts), 0, 0)
    return sum((_merge(store, partition, tables, oldest) for tables in by_columns.values()), Cleaned())


def _merge(store: ObjectStore, partition: str, tables: Mapping[str, pa.Table], oldest: datetime | None) -> Cleaned:
    """Make parts with the same columns one."""
    rows = pa.concat_tables(tables.values())
    origins = rows.select(_ORIGIN).to_pylist()
    unique = {tuple(origin.values()): index for index, origin in enumerate(origins)}
    kept = [index for index in unique.values() if oldest is None or origins[index]["stored"] >= oldest]
    if len(tables) == 1 and len(kept) == len(rows):
        return Cleaned(1, 1, len(kept), 0)
    if kept:
        ordered = sorted(kept, key=lambda index: origins[index]["stored"])
        store.put_bytes(keys.part(partition, uuid4().hex), to_parquet(rows.take(ordered)))
    for part in tables:
        store.delete(part)
    return Cleaned(len(tables), int(bool(kept)), len(kept), len(rows) - len(kept))
