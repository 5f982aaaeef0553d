"""The trajectory and usage tables, append-only, which are also the cache of paid rollouts."""

from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from datetime import UTC, datetime
from functools import reduce
from hashlib import sha256
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field

from skillopt_airflow.core.run.budget import Role
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.types import (
    HAS_SCORE,
    Item,
    ItemRef,
    ModelCall,
    Rollout,
    RolloutResult,
    Split,
    Status,
    Value,
)
from skillopt_airflow.store import keys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.tables.parquet import (
    TRAJECTORIES,
    RolloutRow,
    UsageRow,
    close_parts,
    parts_of,
    read_parts,
    rollouts_from_table,
    rollouts_to_table,
    to_parquet,
    usage_from_table,
    usage_to_table,
)

SCORED = ["run", "item_id", "item_fingerprint", "status", "hard", "soft", "started", "stored"]
"""Columns that identify rows, and their scores, without transcripts."""
IDENTITY = ("skill_sha256", "settings_sha256", "image")
"""Columns of a row's key, without those of the partition."""
EFFORT = ["calls", "prompt_tokens", "completion_tokens"]
_STATUSES = {status.value: status for status in Status}
_MICROSECONDS = 1_000_000
_BATCH = 1000
"""Rows of the usage table per batch of Python objects."""

Items = Sequence[Item | ItemRef]
Mask = Callable[[pa.Table], pa.BooleanArray]
KnownParts = MutableMapping[str, pa.Table]
"""Cache of the rows of each part by its key, because parts never change."""


class RolloutKey(Value):
    """All that a rollout depends on, except the item: rollouts with equal keys are interchangeable."""

    benchmark: str = Field(min_length=1)
    target: str = Field(min_length=1)
    harness: str = Field(min_length=1)
    split: Split
    skill_sha256: str = Field(pattern=r"^[0-9a-f]{64}$")
    sample: int = Field(ge=0)
    settings_sha256: str
    """Hash of the target's settings, such as temperature and token limits."""
    image: str
    """The program: the version of the project's rollout program, or the digest of another image."""

    def partition(self, prefix: str) -> str:
        return keys.trajectories(prefix, **self.model_dump(exclude={"settings_sha256", "image"}))


class RolloutTable:
    """Rollouts below `<prefix>trajectories/`."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    def append(
        self, key: RolloutKey, run: str, rollouts: Sequence[tuple[Item | ItemRef, Rollout]], writer: str = ""
    ) -> None:
        """Write a run's rollouts as one new part; a `writer` can merge its parts later."""
        if not rollouts:
            return
        stored = datetime.now(UTC)
        rows = [
            RolloutRow(run, item.fingerprint, key.skill_sha256, key.settings_sha256, key.image, stored, rollout)
            for item, rollout in rollouts
        ]
        body = to_parquet(rollouts_to_table(rows))
        self._store.put_bytes(keys.part(key.partition(self._prefix), uuid4().hex, writer), body)

    def close(self, key: RolloutKey, writer: str) -> None:
        close_parts(self._store, key.partition(self._prefix), writer)

    def read(self, key: RolloutKey, items: Items) -> dict[str, Rollout]:
        """Return all runs' rollouts with a score by item ID; the first stored one of duplicates."""
        rollouts: dict[str, Rollout] = {}
        for row in self._rows(key, items, has_score):
            rollouts.setdefault(row.rollout.trajectory.item_id, row.rollout)
        return rollouts

    def errors(self, key: RolloutKey, run: str, items: Items) -> dict[str, Rollout]:
        """Return a run's failed rollouts by item ID; the last stored one of several."""

        def failed(table: pa.Table) -> pa.BooleanArray:
            return pc.and_(pc.invert(has_score(table)), pc.equal(table["run"], run))

        return {row.rollout.trajectory.item_id: row.rollout for row in self._rows(key, items, failed)}

    def results(
        self, key: RolloutKey, run: str, items: Items, *, own: bool = False, known: KnownParts | None = None
    ) -> dict[str, RolloutResult]:
        """Return the results of `read`, and for other items those of `errors`, without transcripts.

        With `own`, other runs' rollouts are ignored. `known` caches parts of calls with the same arguments.
        """
        rows = self._table(key, run if own else None, known)
        rows = rows.filter(_of_items(items)(rows))
        scored = rows.filter(has_score(rows))
        failed = rows.filter(pc.and_(pc.invert(has_score(rows)), pc.equal(rows["run"], run)))
        # The last stored failure of an item wins, and the first stored score.
        return {result.item_id: result for result in (*_results(failed), *reversed(_results(scored)))}

    def effort(self, key: RolloutKey, items: Items) -> list[tuple[int, int, int]]:
        """Return calls, tokens read and tokens written of each rollout of `read`."""
        rows = self._table(key, more=EFFORT)
        rows = rows.filter(pc.and_(has_score(rows), _of_items(items)(rows)))
        efforts: dict[str, tuple[int, int, int]] = {}
        for item_id, *effort in zip(*(rows[name].to_pylist() for name in ("item_id", *EFFORT)), strict=True):
            efforts.setdefault(item_id, tuple(effort))
        return list(efforts.values())

    def unparsed(self, key: RolloutKey, run: str, items: Items, *, own: bool = False) -> list[dict[str, Any]]:
        """Return the unchecked rows of a run's comparisons, with the columns SCORED, in order.

        These are all rows of the run, for any items, and other runs' rows with a score for items without a row of the
        run. A second row of an item only counts if it's from the same write, because other tasks may store the item
        concurrently. Duplicates during a cleanup count once. `own` is that of `results`.
        """
        fingerprints = {item.id: item.fingerprint for item in items}
        rows = self._table(key, run if own else None)
        rows = rows.filter(pc.or_(_of_items(items)(rows), pc.equal(rows["run"], run))).select(SCORED)
        first: dict[str, dict[str, Any]] = {}
        chosen = []
        for row in {tuple(row.values()): row for row in rows.to_pylist()}.values():
            name = row["item_id"]
            if row["status"] in HAS_SCORE and fingerprints.get(name) == row["item_fingerprint"]:
                counted = first.setdefault(name, row)
                if counted is row or counted["stored"] == row["stored"]:
                    chosen.append(row)
            elif row["run"] == run:
                chosen.append(row)
        return chosen

    def carried_out(self, key: RolloutKey, run: str) -> list[RolloutResult]:
        """Return all rollouts that a run stored, including failures and retries, in the order of storing."""
        rows = self._table(key, run=run).sort_by([("stored", "ascending"), ("item_id", "ascending")])
        # During a cleanup, rows exist twice.
        stored = dict.fromkeys(zip(rows["stored"].to_pylist(), _results(rows), strict=True))
        return [result for _, result in stored]

    def _table(
        self, key: RolloutKey, run: str | None = None, known: KnownParts | None = None, more: Sequence[str] = ()
    ) -> pa.Table:
        """Return this key's rows, or only a run's, in the order of storing.

        The columns are SCORED, the error and `more`, with times in microseconds to avoid datetime objects.
        """
        named, of_key = [*SCORED, "error", *more], same_key(key)

        def read(file: pq.ParquetFile) -> pa.Table:
            table = file.read(columns=[*named, *IDENTITY])
            mask = of_key(table) if run is None else pc.and_(of_key(table), pc.equal(table["run"], run))
            return table.select(named).filter(mask)

        tables = read_parts(self._store, key.partition(self._prefix), read, known).values()
        rows = pa.concat_tables([TRAJECTORIES.empty_table().select(named), *tables]).sort_by("stored")
        for name in ("started", "stored"):
            rows = rows.set_column(rows.schema.get_field_index(name), name, rows[name].cast(pa.int64()))
        return rows

    def _rows(self, key: RolloutKey, items: Items, wanted: Mask) -> list[RolloutRow]:
        """Return the matching rows of these items in the order of storing."""
        masks = (same_key(key), _of_items(items), wanted)

        def read(file: pq.ParquetFile) -> pa.Table:
            table = file.read(columns=[*SCORED, *IDENTITY])
            chosen = reduce(pc.and_, [mask(table) for mask in masks])
            return file.read().filter(chosen) if pc.any(chosen).as_py() else file.schema_arrow.empty_table()

        tables = read_parts(self._store, key.partition(self._prefix), read).values()
        rows = [row for table in tables for row in rollouts_from_table(table)]
        return sorted(rows, key=lambda row: row.stored)


class UsageTable:
    """Model calls below `<prefix>usage/`."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    def append(
        self, benchmark: str, run: str, calls: Sequence[ModelCall], moment: Moment, share: str = "", writer: str = ""
    ) -> str:
        """Write a moment's calls as one part; return its key, or an empty string without calls.

        The key is derived from the calls, so a write without a response can be repeated. The run's `share` of the
        budget pays. A `writer` can merge its parts later.
        """
        if not calls:
            return ""
        body = to_parquet(usage_to_table(UsageRow(moment.step, moment.name, call, share) for call in calls))
        part = keys.part(self._partition(benchmark, run), sha256(body).hexdigest(), writer)
        self._store.put_bytes(part, body)
        return part

    def close(self, benchmark: str, run: str, writer: str) -> None:
        close_parts(self._store, self._partition(benchmark, run), writer)

    def read(self, benchmark: str, run: str) -> list[UsageRow]:
        return sorted(self.rows(benchmark, run), key=lambda row: row.call.started)

    def tokens(self, benchmark: str, run: str) -> Iterator[tuple[str, Role, bool, int, int]]:
        """Yield share, role, batch, prompt tokens and completion tokens of each call, unordered."""
        columns = ["share", "role", "batch", "prompt_tokens", "completion_tokens"]
        for table in read_parts(
            self._store, self._partition(benchmark, run), lambda file: file.read(columns=columns)
        ).values():
            yield from zip(*(table[name].to_pylist() for name in columns), strict=True)

    def rows(self, benchmark: str, run: str) -> Iterator[UsageRow]:
        """Yield all calls of a run, unordered, with few in memory at a time."""
        tables = read_parts(self._store, self._partition(benchmark, run), pq.ParquetFile.read).values()
        for table in tables:
            for batch in table.to_batches(max_chunksize=_BATCH):
                yield from usage_from_table(pa.Table.from_batches([batch]))

    def _partition(self, benchmark: str, run: str) -> str:
        return keys.usage(self._prefix, benchmark=benchmark, run=run)


def has_score(table: pa.Table) -> pa.BooleanArray:
    return pc.is_in(table["status"], value_set=pa.array(HAS_SCORE))


def same_key(key: RolloutKey) -> Mask:
    """Match the rows of a key; a partition can contain others whose skill hash only starts the same."""
    wanted = key.model_dump(include={*IDENTITY})
    return lambda table: reduce(pc.and_, [pc.equal(table[name], value) for name, value in wanted.items()])


def _of_items(items: Items) -> Mask:
    """Match the rows of items with these fingerprints."""
    ids = pa.array([item.id for item in items], pa.string())
    fingerprints = pa.chunked_array([pa.array([item.fingerprint for item in items], pa.string())])

    def mask(table: pa.Table) -> pa.BooleanArray:
        wanted = fingerprints.take(pc.index_in(table["item_id"], value_set=ids))
        return pc.fill_null(pc.equal(table["item_fingerprint"], wanted), False)

    return mask


def _results(rows: pa.Table) -> list[RolloutResult]:
    started = pc.fill_null(pc.divide(rows["started"].cast(pa.float64()), _MICROSECONDS), 0.0)
    statuses = [_STATUSES[status] for status in rows["status"].to_pylist()]
    item_ids, errors, hard, soft = (rows[name].to_pylist() for name in ("item_id", "error", "hard", "soft"))
    return list(map(RolloutResult, item_ids, statuses, errors, started.to_pylist(), hard, soft))


class Partition(NamedTuple):
    """The partition of one skill's rollouts on one split; `skill` is the first 12 digits of its hash."""

    benchmark: str
    target: str
    harness: str
    split: Split
    skill: str
    sample: int


class RolloutPartitions:
    """The folders below `<prefix>trajectories/`."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    def of_benchmark(self, benchmark: str) -> list[Partition]:
        """Return all partitions of a benchmark, sorted; this lists all keys."""
        parts = parts_of(self._store, keys.trajectories_of(self._prefix, benchmark))
        return sorted({_partition(keys.partition_values(key)) for key in parts})

    def of_skill(self, benchmark: str, skill: str, target: str = "") -> list[Partition]:
        """Return the partitions of a skill (12 digits of its hash), for one target or all."""
        folders = self._below(benchmark, target=target, harness="", split="", skill=skill, sample="")
        return sorted(_partition(values) for values in folders)

    def comparable_skills(self, partition: Partition) -> list[str]:
        """Return the skills with rollouts of the same target, harness and split, with any samples."""
        one = partition
        folders = self._below(one.benchmark, target=one.target, harness=one.harness, split=one.split.value, skill="")
        return [values["skill"] for values in folders]

    def _below(self, benchmark: str, **columns: str) -> list[dict[str, str]]:
        """Return the columns' values of the matching folders; an empty value matches all."""
        folders = [keys.trajectories_of(self._prefix, benchmark)]
        for column, value in columns.items():
            own = [f"{column}={keys.partition_value(value)}"] if value else []
            folders = [f"{folder}{name}/" for folder in folders for name in own or self._store.list_folders(folder)]
        return [keys.partition_values(folder) for folder in folders]


def _partition(values: Mapping[str, str]) -> Partition:
    split, sample = Split(values["split"]), int(values["sample"])
    return Partition(values["benchmark"], values["target"], values["harness"], split, values["skill"], sample)
