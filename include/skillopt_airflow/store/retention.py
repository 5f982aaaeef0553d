"""Keeping the trajectory table small: a partition's many parts become one, and old rows go."""

from datetime import datetime
from typing import NamedTuple
from uuid import uuid4

from skillopt_airflow.core.errors import ObjectMissing
from skillopt_airflow.store import keys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.tables import RolloutRow, from_parquet, rollouts_from_table, rollouts_to_table, to_parquet
from skillopt_airflow.store.trajectories import parts_of


class Cleaned(NamedTuple):
    """What became of one or more partitions; rows of those that were left as they are do not count."""

    parts_before: int = 0
    parts_after: int = 0
    rows_kept: int = 0
    rows_dropped: int = 0

    def __add__(self, other: object) -> "Cleaned":
        if not isinstance(other, Cleaned):
            return NotImplemented
        return Cleaned(*(mine + theirs for mine, theirs in zip(self, other, strict=True)))


def partitions(store: ObjectStore, prefix: str, benchmark: str) -> list[str]:
    """The partitions of a benchmark's trajectories, each with a slash at its end."""
    parts = parts_of(store, keys.trajectories_of(prefix, benchmark))
    return sorted({f"{part.rpartition('/')[0]}/" for part in parts})


def compact(store: ObjectStore, partition: str, oldest: datetime | None) -> Cleaned:
    """Make the partition's parts one, without the rows stored before `oldest` and without duplicates.

    The merged part is written before the others go: who reads meanwhile finds rows twice, never too few. Parts that
    others write meanwhile are left alone, and so is a partition that somebody else is compacting.
    """
    parts = parts_of(store, partition)
    if len(parts) == 1 and oldest is None:
        return Cleaned(1, 1)
    try:
        rows = [row for part in parts for row in rollouts_from_table(from_parquet(store.get_bytes(part)))]
    except ObjectMissing:
        return Cleaned(len(parts), len(parts), 0, 0)
    unique = {_identity(row): row for row in rows}
    kept = [row for row in unique.values() if oldest is None or row.stored >= oldest]
    if len(parts) > 1 or len(kept) < len(rows):
        if kept:
            ordered = sorted(kept, key=lambda row: row.stored)
            store.put_bytes(keys.part(partition, uuid4().hex), to_parquet(rollouts_to_table(ordered)))
        for part in parts:
            store.delete(part)
        return Cleaned(len(parts), int(bool(kept)), len(kept), len(rows) - len(kept))
    return Cleaned(len(parts), len(parts), len(kept), 0)


def _identity(row: RolloutRow) -> tuple[object, ...]:
    trajectory = row.rollout.trajectory
    origin = (row.run, row.item_fingerprint, row.skill_sha256, row.settings_sha256, row.image, row.stored)
    return (*origin, trajectory.item_id, trajectory.status, trajectory.started)
