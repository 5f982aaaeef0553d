"""Files in the cells of a Parquet file: structures with their bytes, as the Hugging Face hub has pictures.

Records have references to them, by column and row, so that no record ever holds a file.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping
from functools import lru_cache
from itertools import accumulate
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet

from skillopt_airflow.core.errors import DataError

_REFERENCE = re.compile(r"(?is)(?P<path>.+\.parquet)#cell=(?P<column>.+?)/(?P<row>\d{9})(?:/(?P<place>\d+))?$")
BYTES = "bytes"
"""The field of the structure that holds the content; another one has the name that the file had."""


class Cell(NamedTuple):
    """The place of a file's content."""

    path: str
    """The Parquet file, below the folder of its data set."""
    column: str
    row: int
    """From 0."""
    place: int | None = None
    """In the cell's list; None where the cell holds one file."""

    @classmethod
    def of(cls, reference: str) -> "Cell | None":
        """Return the cell that a path leads to; None if it is the path of a file."""
        found = _REFERENCE.match(reference)
        if found is None:
            return None
        place = None if found["place"] is None else int(found["place"])
        return cls(found["path"], found["column"], int(found["row"]), place)

    def __str__(self) -> str:
        # Filled up, so that sorted references are in the order of rows.
        at = "" if self.place is None else f"/{self.place}"
        return f"{self.path}#cell={self.column}/{self.row:09d}{at}"


class Cells:
    """The cells of one Parquet file; the last part that was read of it is kept, since rows are read in order."""

    def __init__(self, opened: Callable[[], "pa.parquet.ParquetFile"]) -> None:
        """Open a file; raise DataError if it is no Parquet file."""
        try:
            self._file = opened()
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"not a Parquet file ({error})") from error
        sizes = (self._file.metadata.row_group(number).num_rows for number in range(self._file.num_row_groups))
        self._starts = [0, *accumulate(sizes)]
        """First row of each part, and the number of all rows."""
        self._column = lru_cache(maxsize=1)(self._read)

    def read(self, cell: Cell) -> bytes:
        """Return the content of a file.

        Raises:
            DataError: it is not there.
        """
        try:
            group = bisect_right(self._starts, cell.row) - 1
            value = self._column(group, cell.column)[cell.row - self._starts[group]].as_py()
            content = (value if cell.place is None else value[cell.place])[BYTES]
        except (LookupError, TypeError, pa.ArrowException) as error:
            raise DataError(f"{cell}: there is no such cell with a file ({error})") from error
        if not isinstance(content, bytes):
            raise DataError(f"{cell}: the file is not in the table, which has its name alone")
        return content

    def _read(self, group: int, column: str) -> "pa.ChunkedArray":
        return self._file.read_row_group(group, columns=[column]).column(column)


def file_columns(schema: "pa.Schema") -> frozenset[str]:
    return frozenset(field.name for field in schema if _is_file(field.type) or _is_list_of_files(field.type))


def leaves(file: "pa.parquet.ParquetFile", without: Collection[str]) -> list[str]:
    """Return what has to be read for the records: all but the bytes in these columns."""
    paths = [file.schema.column(number).path for number in range(len(file.schema.names))]
    return [path for path in paths if path.partition(".")[0] not in without or not path.endswith(f".{BYTES}")]


def with_references(row: Mapping[str, object], columns: Collection[str], path: str, number: int) -> dict[str, object]:
    """Return a row (counted from 0) with references in the place of files; `path` is where the table lies."""

    def reference(column: str, value: object) -> object:
        if isinstance(value, list):
            return [str(Cell(path, column, number, place)) for place in range(len(value))]
        return None if value is None else str(Cell(path, column, number))

    return {column: reference(column, value) if column in columns else value for column, value in row.items()}


def _is_file(kind: "pa.DataType") -> bool:
    if not pa.types.is_struct(kind) or len(kind) < 2:
        return False
    return any(field.name == BYTES and _is_bytes(field.type) for field in kind)


def _is_list_of_files(kind: "pa.DataType") -> bool:
    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind)) and _is_file(kind.value_type)


def _is_bytes(kind: "pa.DataType") -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))
