"""The parts of a partition: immutable Parquet objects, which are read together.

A chunk writes small parts while it runs, all under its writer's prefix, and closes them with one object that has all
their rows. The small ones don't count beside it, whether they are removed by then or not. A listing has the closing
object after them, so a reader finds every row once at any moment. The nightly cleanup merges parts of past days.
"""

from collections.abc import Callable, Iterable, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pyarrow.parquet as pq
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_delay, wait_exponential

from skillopt_airflow.core.errors import ObjectMissing, StoreUnavailable
from skillopt_airflow.store import keys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.parquet import join_parquet, opened

READERS = 8
FIRST_PAUSE = 0.1
"""Seconds until a partition is listed again whose parts were removed before they were read; the pauses double."""
LONGEST_PAUSE = 2.0
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
        wait=wait_exponential(FIRST_PAUSE, max=LONGEST_PAUSE),
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
