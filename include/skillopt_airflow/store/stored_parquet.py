"""Parquet objects of a store, of which only what is asked for is read."""

import io

import pyarrow as pa
import pyarrow.parquet as pq

from skillopt_airflow.store.objects import ObjectStore

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
