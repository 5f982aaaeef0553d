"""Files in the cells of a Parquet file: structs with their bytes, like the pictures of the Hugging Face Hub.

Records contain references to cells instead of the files.
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
"""Field of the content in the struct; another field has the file's original name."""


class Cell(NamedTuple):
    """The place of a file's content."""

    path: str
    """Path of the Parquet file, below the folder of its dataset."""
    column: str
    row: int
    """0-based."""
    place: int | None = None
    """Index in the cell's list; None if the cell contains one file."""

    @classmethod
    def of(cls, reference: str) -> "Cell | None":
        """Return the cell that a reference names; None for the path of a plain file."""
        match = _REFERENCE.match(reference)
        if match is None:
            return None
        place = None if match["place"] is None else int(match["place"])
        return cls(match["path"], match["column"], int(match["row"]), place)

    def __str__(self) -> str:
        # Zero-padded, so that references sort by row.
        at = "" if self.place is None else f"/{self.place}"
        return f"{self.path}#cell={self.column}/{self.row:09d}{at}"


class Cells:
    """The cells of one Parquet file, with a cache of the last row group, because rows are read in order."""

    def __init__(self, open_file: Callable[[], "pa.parquet.ParquetFile"]) -> None:
        try:
            self._file = open_file()
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"not a Parquet file ({error})") from error
        sizes = (self._file.metadata.row_group(number).num_rows for number in range(self._file.num_row_groups))
        self._starts = [0, *accumulate(sizes)]
        """First row of each row group, and the total number of rows."""
        self._column = lru_cache(maxsize=1)(self._read)

    def read(self, cell: Cell) -> bytes:
        try:
            group = bisect_right(self._starts, cell.row) - 1
            value = self._column(group, cell.column)[cell.row - self._starts[group]].as_py()
            content = (value if cell.place is None else value[cell.place])[BYTES]
        except (LookupError, TypeError, pa.ArrowException) as error:
            raise DataError(f"{cell}: no such cell with a file ({error})") from error
        if not isinstance(content, bytes):
            raise DataError(f"{cell}: the table contains only the file's name, not its content")
        return content

    def _read(self, group: int, column: str) -> "pa.ChunkedArray":
        return self._file.read_row_group(group, columns=[column]).column(column)


def file_columns(schema: "pa.Schema") -> frozenset[str]:
    return frozenset(field.name for field in schema if _is_file(field.type) or _is_list_of_files(field.type))


def leaves(file: "pa.parquet.ParquetFile", without: Collection[str]) -> list[str]:
    """Return the columns of the records: all except the bytes of files in these columns."""
    paths = [file.schema.column(number).path for number in range(len(file.schema.names))]
    return [path for path in paths if path.partition(".")[0] not in without or not path.endswith(f".{BYTES}")]


def with_references(row: Mapping[str, object], columns: Collection[str], path: str, number: int) -> dict[str, object]:
    """Return a row (0-based) with references instead of files; `path` is the table's."""

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
