"""Arrow schemas of the two tables, conversion of their rows, and the parts of a partition.

Partition columns (benchmark, target, harness, split, skill, sample; benchmark, run) are only in the keys: a reader with
Hive partitioning adds them, and pyarrow refuses a column that is in both.

Parts are immutable objects. A chunk writes small parts under its writer's prefix while it runs, and finally one object
with all their rows, which replaces them. A listing returns that object after the small parts, so a reader always finds
each row once. The nightly cleanup merges parts of past days.
"""

import io
from collections.abc import Callable, Iterable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from skillopt_airflow.core.errors import ObjectMissing, StoreUnavailable
from skillopt_airflow.core.values.types import Grade, ModelCall, Rollout, Score, Trajectory
from skillopt_airflow.store import keys
from skillopt_airflow.store.objects import ObjectStore

GROUP_BYTES = 16 * 1024 * 1024
"""Size of a row group before compression, which limits the read of a single row."""
_MICROSECONDS = 1_000_000
_TEXT, _COUNT, _NUMBER, _TIME = pa.string(), pa.int64(), pa.float64(), pa.timestamp("us", tz="UTC")


def _columns(kind: pa.DataType, *names: str, nullable: bool = False) -> list[pa.Field]:
    return [pa.field(name, kind, nullable=nullable) for name in names]


def _list_of(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind, nullable=False))


TRAJECTORIES: pa.Schema = pa.schema(
    [
        *_columns(_TEXT, "run", "item_id", "item_fingerprint", "skill_sha256", "settings_sha256", "image"),
        *_columns(_TEXT, "status", "error"),
        *_columns(_NUMBER, "hard", "soft", nullable=True),
        *_columns(_COUNT, "calls", "prompt_tokens", "completion_tokens"),
        *_columns(_NUMBER, "seconds"),
        *_columns(_TIME, "stored"),
        *_columns(_TIME, "started", nullable=True),
        *_columns(_TEXT, "feedback", "grade", nullable=True),
        *_columns(_TEXT, "answer"),
        *_columns(_list_of(pa.struct(_columns(_TEXT, "role", "content"))), "messages"),
        *_columns(_list_of(_TEXT), "files"),
    ]
)
"""One row per rollout. hard, soft and feedback are null unless the status is one of HAS_SCORE. grade is the judge
model's as JSON, or null. started is null if nothing started. Large columns come last, so that listing rollouts reads
one range per row group."""

USAGE: pa.Schema = pa.schema(
    [
        *_columns(_COUNT, "step"),
        *_columns(_TEXT, "moment", "role", "stage", "model"),
        *_columns(_COUNT, "http_status", "attempts", "prompt_tokens", "completion_tokens"),
        *_columns(_TIME, "started"),
        *_columns(_NUMBER, "seconds"),
        *_columns(pa.bool_(), "batch"),
        *_columns(_TEXT, "share"),
    ]
)
"""One row per model call. step is 0 outside of steps, and moment is a name such as steps/step_0001. share is the share
of the run's budget that paid for the call, or empty without a budget."""


class RolloutRow(NamedTuple):
    """A rollout and its origin."""

    run: str
    item_fingerprint: str
    skill_sha256: str
    settings_sha256: str
    image: str
    stored: datetime
    """UTC."""
    rollout: Rollout


class UsageRow(NamedTuple):
    """A model call with its step and moment; see USAGE."""

    step: int
    moment: str
    call: ModelCall
    share: str = ""


def rollouts_to_table(rows: Iterable[RolloutRow]) -> pa.Table:
    """Return the rows as TRAJECTORIES, with times rounded to microseconds."""
    return pa.Table.from_pylist([_rollout_record(row) for row in rows], schema=TRAJECTORIES)


def rollouts_from_table(table: pa.Table) -> list[RolloutRow]:
    """Return the rows of TRAJECTORIES; ignore other columns."""
    return [_rollout_row(record) for record in table.to_pylist()]


def usage_to_table(rows: Iterable[UsageRow]) -> pa.Table:
    """Return the rows as USAGE, with times rounded to microseconds."""
    return pa.Table.from_pylist(
        [
            {"step": row.step, "moment": row.moment, "share": row.share}
            | row.call.model_dump()
            | {"started": _utc(row.call.started)}
            for row in rows
        ],
        schema=USAGE,
    )


def usage_from_table(table: pa.Table) -> list[UsageRow]:
    """Return the rows of USAGE; ignore other columns."""
    return [
        UsageRow(
            record["step"],
            record["moment"],
            ModelCall.model_validate(record | {"started": record["started"].timestamp()}, extra="ignore"),
            record["share"],
        )
        for record in table.to_pylist()
    ]


def to_parquet(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    rows = max(1, len(table) * GROUP_BYTES // max(1, table.nbytes))
    pq.write_table(table, sink, compression="zstd", row_group_size=rows)
    return bytes(sink.getvalue())


def join_parquet(tables: Iterable[pa.Table]) -> bytes:
    """Return tables with equal columns as one file; only one row group is in memory at a time."""
    rest = iter(tables)
    sink, waiting = pa.BufferOutputStream(), [next(rest)]
    with pq.ParquetWriter(sink, waiting[0].schema, compression="zstd") as writer:
        for table in rest:
            if sum(one.nbytes for one in waiting) >= GROUP_BYTES:
                writer.write_table(pa.concat_tables(waiting))
                waiting = []
            waiting.append(table)
        writer.write_table(pa.concat_tables(waiting))
    return bytes(sink.getvalue())


def from_parquet(body: bytes) -> pa.Table:
    # `pq.read_table` imports pyarrow's datasets and pandas, which takes half a second. Filters by expression import
    # them, too, so this package uses masks.
    return pq.ParquetFile(pa.BufferReader(body)).read()


def _rollout_record(row: RolloutRow) -> dict[str, Any]:
    trajectory, score = row.rollout.trajectory, row.rollout.score
    verdict: dict[str, Any] = {"hard": None, "soft": None, "feedback": None}
    if score is not None:
        verdict = score.model_dump(exclude={"grade"})
        verdict["grade"] = None if score.grade is None else score.grade.model_dump_json()
    times = {"started": _utc(trajectory.started) if trajectory.started else None}
    return trajectory.model_dump(mode="json") | verdict | times | row._asdict()


def _rollout_row(record: dict[str, Any]) -> RolloutRow:
    started = record["started"]
    trajectory = Trajectory.model_validate(
        record | {"started": 0.0 if started is None else started.timestamp()}, extra="ignore"
    )
    score = None
    if record["hard"] is not None:
        grade = record["grade"]
        parsed = None if grade is None else Grade.model_validate_json(grade)
        score = Score.model_validate(record | {"grade": parsed}, extra="ignore")
    origin = {field: record[field] for field in RolloutRow._fields if field != "rollout"}
    return RolloutRow(**origin, rollout=Rollout(trajectory=trajectory, score=score))


def _utc(seconds: float) -> datetime:
    whole, micro = divmod(round(seconds * _MICROSECONDS), _MICROSECONDS)
    return datetime.fromtimestamp(whole, UTC).replace(microsecond=micro)


TAIL = 64 * 1024
"""Size of the first read at an object's end: a small object, or the footer and last columns of a large one."""


def open_parquet(store: ObjectStore, key: str) -> pq.ParquetFile:
    """Open a Parquet object; only fetch the columns that are read, unless it's small.

    Raises:
        ObjectMissing: the object doesn't exist. Later reads raise it, too, if the object is removed.
    """
    tail, size = store.get_tail(key, TAIL)
    if len(tail) == size:
        return pq.ParquetFile(pa.BufferReader(tail))
    return pq.ParquetFile(pa.PythonFile(_Ranges(store, key, tail, size), mode="r"), pre_buffer=True)


class _Ranges(io.RawIOBase):
    """A file over an object that reads ranges."""

    def __init__(self, store: ObjectStore, key: str, tail: bytes, size: int) -> None:
        self._store, self._key, self._tail, self._size = store, key, tail, size
        self._place = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._place

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._place = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._size}[whence]
        return self._place

    def read(self, size: int = -1) -> bytes:
        start, stop = self._place, self._size if size < 0 else min(self._size, self._place + size)
        self._place = max(start, stop)
        if start >= stop:
            return b""
        known = self._size - len(self._tail)
        if start >= known:
            return self._tail[start - known : stop - known]
        return self._store.get_range(self._key, start, stop)


READERS = 8
FIRST_PAUSE = 0.1
"""First pause in seconds before listing a partition again if its parts were removed; pauses double."""
MAX_PAUSE = 2.0
PATIENCE = 30.0
"""Timeout in seconds of these attempts."""


def parts_of(store: ObjectStore, partition: str) -> list[str]:
    return current_parts(store.list_keys(partition))


def current_parts(listed: Iterable[str]) -> list[str]:
    """Return the keys of parts, without small parts that a merged one replaces."""
    parts = [key for key in listed if key.endswith(".parquet")]
    known = set(parts)
    return [key for key in parts if keys.closing_part(key) not in known]


def close_parts(store: ObjectStore, partition: str, writer: str) -> None:
    """Merge a writer's small parts into one object."""
    small = store.list_keys(keys.parts_of_writer(partition, writer))
    if len(small) > 1:
        store.put_bytes(keys.part(partition, writer), join_parquet(open_parquet(store, key).read() for key in small))
        for key in small:
            store.delete(key)


def read_parts(
    store: ObjectStore,
    partition: str,
    read: Callable[[pq.ParquetFile], pa.Table],
    known: MutableMapping[str, pa.Table] | None = None,
    *,
    readers: int = READERS,
) -> dict[str, pa.Table]:
    """Return the result of `read` for each current part, by key; list again if parts are removed meanwhile.

    `known` caches results.

    Raises:
        StoreUnavailable: for PATIENCE seconds, parts were removed between listing and reading.
    """
    seen = {} if known is None else known
    retrying = Retrying(
        stop=stop_after_delay(PATIENCE),
        wait=wait_exponential(FIRST_PAUSE, max=MAX_PAUSE),
        retry=retry_if_exception_type(ObjectMissing),
    )

    def read_one(key: str) -> pa.Table:
        if key not in seen:
            seen[key] = read(open_parquet(store, key))
        return seen[key]

    def read_all() -> dict[str, pa.Table]:
        listed = parts_of(store, partition)
        for key in seen.keys() - listed:
            seen.pop(key, None)
        with ThreadPoolExecutor(readers) as pool:
            return dict(zip(listed, pool.map(read_one, listed), strict=True))

    try:
        return dict(retrying(read_all))
    except RetryError:
        raise StoreUnavailable(
            f"{store.address(partition)}: its parts change faster than they can be read. Try again."
        ) from None
