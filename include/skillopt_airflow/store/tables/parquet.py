"""Arrow schemas of the two tables, conversion between their rows and the domain's values, and the parts of a partition.

Partition columns (benchmark, target, harness, split, skill, draw; benchmark, run) are in the keys alone: a reader
with Hive partitioning adds them, and pyarrow refuses a column that is in both.

Parts are immutable objects, which are read together. A chunk writes small parts while it runs, all under its writer's
prefix, and closes them with one object that has all their rows. The small ones don't count beside it, whether they are
removed by then or not. A listing has the closing object after them, so a reader finds every row once at any moment. The
nightly cleanup merges parts of past days.
"""

import io
from collections.abc import Callable, Iterable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from skillopt_airflow.core.errors import ObjectMissing, StoreUnavailable
from skillopt_airflow.core.values.types import Grade, ModelCall, Rollout, Score, Trajectory
from skillopt_airflow.store import keys
from skillopt_airflow.store.objects import ObjectStore

GROUP_BYTES = 16 * 1024 * 1024
"""Of a row group, before compression: who wants all of one row reads its group."""
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
"""One row a rollout. hard, soft and feedback are null unless the status is one of HAS_SCORE; grade is null unless a
model judged the answer, and else its words as JSON; started is null if nothing started. Large columns come last, so
that a list of rollouts is one range of each row group."""

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
"""One row a model call; step 0 is outside of the steps, moment is a name such as steps/step_0001. share is that of the
run's budget which paid for it, empty without a budget."""


class RolloutRow(NamedTuple):
    """A rollout and what it was made from."""

    run: str
    item_fingerprint: str
    skill_sha256: str
    settings_sha256: str
    image: str
    stored: datetime
    """UTC."""
    rollout: Rollout


class UsageRow(NamedTuple):
    """A model call, the steps taken with it (0 before the first), and the name of the moment that made it."""

    step: int
    moment: str
    call: ModelCall
    share: str = ""
    """The share of the run's budget that paid for it; empty without a budget."""


def rollouts_to_table(rows: Iterable[RolloutRow]) -> pa.Table:
    """Return the rows as TRAJECTORIES; times are rounded to microseconds."""
    return pa.Table.from_pylist([_rollout_record(row) for row in rows], schema=TRAJECTORIES)


def rollouts_from_table(table: pa.Table) -> list[RolloutRow]:
    """Return the rows of TRAJECTORIES, in order; other columns are passed over."""
    return [_rollout_row(record) for record in table.to_pylist()]


def usage_to_table(rows: Iterable[UsageRow]) -> pa.Table:
    """Return the rows as USAGE; times are rounded to microseconds."""
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
    """Return the rows of USAGE, in order; other columns are passed over."""
    return [
        UsageRow(
            record["step"],
            record["moment"],
            ModelCall.model_validate(record | {"started": _seconds(record["started"])}, extra="ignore"),
            record["share"],
        )
        for record in table.to_pylist()
    ]


def to_parquet(table: pa.Table) -> bytes:
    """Return a table as one zstd Parquet file."""
    sink = pa.BufferOutputStream()
    rows = max(1, len(table) * GROUP_BYTES // max(1, table.nbytes))
    pq.write_table(table, sink, compression="zstd", row_group_size=rows)
    return bytes(sink.getvalue())


def join_parquet(tables: Iterable[pa.Table]) -> bytes:
    """Return tables with equal columns as one file; only a row group of them is in memory at a time."""
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
    # `pq.read_table` would import pyarrow's data sets, and with them pandas: half a second of a short task's one. So
    # would a table's filter by an expression, which is why rows are chosen by masks.
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
        record | {"started": 0.0 if started is None else _seconds(started)}, extra="ignore"
    )
    score = None
    if record["hard"] is not None:
        grade = record["grade"]
        judged = None if grade is None else Grade.model_validate_json(grade)
        score = Score.model_validate(record | {"grade": judged}, extra="ignore")
    origin = {field: record[field] for field in RolloutRow._fields if field != "rollout"}
    return RolloutRow(**origin, rollout=Rollout(trajectory=trajectory, score=score))


def _utc(seconds: float) -> datetime:
    whole, micro = divmod(round(seconds * _MICROSECONDS), _MICROSECONDS)
    return datetime.fromtimestamp(whole, UTC).replace(microsecond=micro)


def _seconds(moment: datetime) -> float:
    return moment.timestamp()


TAIL = 64 * 1024
"""Bytes of an object's end that are read at once: all of a small one, footer and last columns of a large one."""


def opened(store: ObjectStore, key: str) -> pq.ParquetFile:
    """Open a Parquet object; columns that are not read are not fetched either, unless it is small.

    Raises:
        ObjectMissing: nothing is stored under the key; also while it is read, if it goes meanwhile.
    """
    tail, size = store.get_tail(key, TAIL)
    if len(tail) == size:
        return pq.ParquetFile(pa.BufferReader(tail))
    return pq.ParquetFile(pa.PythonFile(_Ranges(store, key, tail, size), mode="r"), pre_buffer=True)


def text_bounds(file: pq.ParquetFile, group: int, column: str) -> tuple[str, str] | None:
    """Return the smallest and the largest text of a column in a row group, if its statistics tell."""
    found = file.metadata.row_group(group)
    # A column with lists has several places, so that the others' numbers are not those of the schema.
    place = next(place for place in range(found.num_columns) if found.column(place).path_in_schema == column)
    told = found.column(place).statistics
    return None if told is None or not told.has_min_max or told.null_count else (str(told.min), str(told.max))


class _Ranges(io.RawIOBase):
    """An object as a file, read in ranges."""

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
"""Seconds until a partition is listed again whose parts were removed before they were read; the pauses double."""
MAX_PAUSE = 2.0
PATIENCE = 30.0
"""Seconds after which it isn't listed again."""

T = TypeVar("T")


def parts_of(store: ObjectStore, partition: str) -> list[str]:
    return counting(store.list_keys(partition))


def counting(listed: Iterable[str]) -> list[str]:
    """Return the keys of parts without those whose writer has closed them."""
    parts = [key for key in listed if key.endswith(".parquet")]
    there = set(parts)
    return [key for key in parts if keys.closing_part(key) not in there]


def close_parts(store: ObjectStore, partition: str, writer: str) -> None:
    """Put all rows of a writer's parts into one object."""
    small = store.list_keys(keys.parts_of_writer(partition, writer))
    if len(small) > 1:
        store.put_bytes(keys.part(partition, writer), join_parquet(opened(store, key).read() for key in small))
        for key in small:
            store.delete(key)


def read_parts(
    store: ObjectStore,
    partition: str,
    read: Callable[[pq.ParquetFile], T],
    known: MutableMapping[str, T] | None = None,
    *,
    readers: int = READERS,
) -> dict[str, T]:
    """Return what is read of each part that counts, by key; parts that go meanwhile are listed again.

    Args:
        known: what was read before, since a part never changes; it is brought up to date.

    Raises:
        StoreUnavailable: parts vanished between listing and reading for PATIENCE seconds.
    """
    seen = {} if known is None else known
    retrying = Retrying(
        stop=stop_after_delay(PATIENCE),
        wait=wait_exponential(FIRST_PAUSE, max=MAX_PAUSE),
        retry=retry_if_exception_type(ObjectMissing),
    )

    def look_at(key: str) -> T:
        if key not in seen:
            seen[key] = read(opened(store, key))
        return seen[key]

    def look() -> dict[str, T]:
        listed = parts_of(store, partition)
        for key in seen.keys() - listed:
            seen.pop(key, None)
        if len(listed) == 1:
            # It is read in less time than a thread begins.
            return {listed[0]: look_at(listed[0])}
        with ThreadPoolExecutor(readers) as pool:
            return dict(zip(listed, pool.map(look_at, listed), strict=True))

    try:
        return dict(retrying(look))
    except RetryError:
        raise StoreUnavailable(
            f"{store.address(partition)}: its parts change faster than they can be read; try again"
        ) from None
