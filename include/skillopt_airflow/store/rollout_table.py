"""The trajectory and usage tables: append-only parts, read back as a cache of what was already paid for."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from skillopt_airflow.core.errors import ObjectMissing, StoreUnavailable
from skillopt_airflow.core.timeline import Moment
from skillopt_airflow.core.types import HAS_SCORE, Item, ModelCall, Rollout, Split, Status, Trajectory, Value
from skillopt_airflow.store import keys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.parquet import (
    RolloutRow,
    UsageRow,
    from_parquet,
    rollouts_from_table,
    rollouts_to_table,
    to_parquet,
    usage_from_table,
    usage_to_table,
)

READERS = 8
FIRST_PAUSE = 0.1
"""Seconds until a partition whose parts are being merged is looked at again; the pauses double."""
LONGEST_PAUSE = 2.0
PATIENCE = 30.0
"""Seconds after which it is not looked at again."""

SCORED = ["run", "item_id", "item_fingerprint", "status", "hard", "soft", "started", "stored"]
"""Columns of the trajectory table without what the target said."""


class RolloutKey(Value):
    """Everything but the item that a rollout depends on: rollouts with equal keys are as good as each other."""

    benchmark: str = Field(min_length=1)
    target: str = Field(min_length=1)
    harness: str = Field(min_length=1)
    split: Split
    skill_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    draw: int = Field(ge=0)
    settings_sha256: str
    """Hash of the target's settings, such as temperature and token limits."""
    image: str
    """Program that made it: the version of the project's own rollout program, or the digest of another image."""


class RolloutTable:
    """Rollouts below `<prefix>trajectories/`."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    def append(self, key: RolloutKey, run: str, rollouts: Sequence[tuple[Item, Rollout]]) -> None:
        """Write the rollouts of a run as one new part; nothing is ever overwritten."""
        if not rollouts:
            return
        stored = datetime.now(UTC)
        rows = [
            RolloutRow(run, item.fingerprint, key.skill_sha256, key.settings_sha256, key.image, stored, rollout)
            for item, rollout in rollouts
        ]
        body = to_parquet(rollouts_to_table(rows))
        self._store.put_bytes(keys.part(self._partition(key), uuid4().hex), body)

    def read(self, key: RolloutKey, items: Sequence[Item]) -> dict[str, Rollout]:
        """Return any run's rollouts that have a score, by item id; of duplicates, the first that was stored."""
        found: dict[str, Rollout] = {}
        for row in self._rows(key, items, pc.field("status").isin(HAS_SCORE)):
            found.setdefault(row.rollout.trajectory.item_id, row.rollout)
        return found

    def errors(self, key: RolloutKey, run: str, items: Sequence[Item]) -> dict[str, Rollout]:
        """Return the failed rollouts of one run by item id; of several, the last that was stored."""
        failed = ~pc.field("status").isin(HAS_SCORE) & (pc.field("run") == run)
        return {row.rollout.trajectory.item_id: row.rollout for row in self._rows(key, items, failed)}

    def unparsed(self, key: RolloutKey, run: str, items: Sequence[Item]) -> list[dict[str, Any]]:
        """Return the unchecked rows that a run's conclusions rest on: SCORED by name, in order.

        That is every row of the run itself, of whatever items, and what other runs have stored of these items with a
        score where the run has nothing. A second row of an item counts if it is of the same write: other tasks
        may store an item at the same time, and parts that are being merged are there twice.
        """
        own, scored = pc.field("run") == run, pc.field("status").isin(HAS_SCORE)
        tables = _read_parts(self._store, self._partition(key), self._same(key) & (own | scored))
        rows = [row for table in tables for row in table.select(SCORED).to_pylist()]
        fingerprints = {item.id: item.fingerprint for item in items}
        first: dict[str, dict[str, Any]] = {}
        chosen = []
        for row in sorted(rows, key=lambda row: row["stored"]):
            name, mine = row["item_id"], row["run"] == run
            if row["status"] in HAS_SCORE and fingerprints.get(name) == row["item_fingerprint"]:
                counted = first.setdefault(name, row)
                if counted is row or (counted["stored"] == row["stored"] and counted != row):
                    chosen.append(row)
            elif mine:
                chosen.append(row)
        return chosen

    def carried_out(self, key: RolloutKey, run: str) -> list[Trajectory]:
        """Return every rollout that a run itself stored, failures and retries too, in the order of storing.

        They hold only their item, status and error.
        """
        tables = _read_parts(self._store, self._partition(key), self._same(key) & (pc.field("run") == run))
        columns = ["stored", "started", "item_id", "status", "error"]
        # Parts that are being merged are there twice.
        rows = {tuple(row.values()) for table in tables for row in table.select(columns).to_pylist()}
        return [
            Trajectory(item_id=item_id, status=Status(status), error=error)
            for _, _, item_id, status, error in sorted(rows, key=lambda row: (row[0], row[2]))
        ]

    def _rows(self, key: RolloutKey, items: Sequence[Item], wanted: Any) -> Iterator[RolloutRow]:
        """Yield the matching rows of these very items, in the order in which they were stored."""
        fingerprints = {item.id: item.fingerprint for item in items}
        tables = _read_parts(self._store, self._partition(key), self._same(key) & wanted)
        rows = [row for table in tables for row in rollouts_from_table(table)]
        for row in sorted(rows, key=lambda row: row.stored):
            if fingerprints.get(row.rollout.trajectory.item_id) == row.item_fingerprint:
                yield row

    @staticmethod
    def _same(key: RolloutKey) -> Any:
        return (
            (pc.field("skill_sha256") == key.skill_sha256)
            & (pc.field("settings_sha256") == key.settings_sha256)
            & (pc.field("image") == key.image)
        )

    def _partition(self, key: RolloutKey) -> str:
        return keys.trajectories(
            self._prefix,
            benchmark=key.benchmark,
            target=key.target,
            harness=key.harness,
            split=key.split,
            skill_sha256=key.skill_sha256,
            draw=key.draw,
        )


class UsageTable:
    """Model calls below `<prefix>usage/`."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    def append(self, benchmark: str, run: str, calls: Sequence[ModelCall], moment: Moment) -> None:
        """Write calls of a moment as one new part."""
        if not calls:
            return
        body = to_parquet(usage_to_table(UsageRow(moment.step, moment.name, call) for call in calls))
        self._store.put_bytes(keys.part(self._partition(benchmark, run), uuid4().hex), body)

    def read(self, benchmark: str, run: str) -> list[UsageRow]:
        """Return all calls of a run, by the time they started."""
        tables = _read_parts(self._store, self._partition(benchmark, run))
        rows = [row for table in tables for row in usage_from_table(table)]
        return sorted(rows, key=lambda row: row.call.started)

    def _partition(self, benchmark: str, run: str) -> str:
        return keys.usage(self._prefix, benchmark=benchmark, run=run)


def parts_of(store: ObjectStore, partition: str) -> list[str]:
    """Return the keys of a partition's parts."""
    return [key for key in store.list_keys(partition) if key.endswith(".parquet")]


def _read_parts(store: ObjectStore, partition: str, rows: Any = None) -> list[pa.Table]:
    """Return the rows of all parts; a merge removes parts one by one, so it tries again for a while.

    Raises:
        StoreUnavailable: parts vanished between listing and reading for as long as that.
    """
    retrying = Retrying(
        stop=stop_after_delay(PATIENCE),
        wait=wait_exponential(FIRST_PAUSE, max=LONGEST_PAUSE),
        retry=retry_if_exception_type(ObjectMissing),
    )
    try:
        tables: list[pa.Table] = retrying(_look, store, partition, rows)
    except RetryError:
        raise StoreUnavailable(
            f"{store.address(partition)}: its parts change faster than they can be read; try again"
        ) from None
    return tables


def _look(store: ObjectStore, partition: str, rows: Any) -> list[pa.Table]:
    with ThreadPoolExecutor(READERS) as pool:
        return list(pool.map(lambda part: from_parquet(store.get_bytes(part), rows), parts_of(store, partition)))
