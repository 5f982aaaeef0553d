"""The formats of a file of records by file extension, JSON, JSON Lines, CSV, TSV and Parquet, and Parquet's cells."""

import csv
import datetime
import io
import json
import math
import re
import sys
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import lru_cache, partial
from itertools import accumulate, islice
from pathlib import PurePosixPath
from typing import NamedTuple, NoReturn
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import JsonObject, canonical_json
from skillopt_airflow.tasks.record_fields import UnreadableRecord

BATCH = 2000
MAX_NAMED = 5
"""Limit of arrays that an error names."""
ID = "id"
"""Column of a record's key in an object of records, or of the file name if the file is one record."""
DELIMITERS = ",;\t|"
Rows = Callable[[Iterable[str]], Iterator[list[str]]]
"""Reads lines as rows of cells."""
SAMPLED_ROWS = 20
"""Number of rows that are compared with the header to find the delimiter."""

# The limit is global, so changing it per file would affect other threads. The size of records of all formats is checked
# later.
csv.field_size_limit(sys.maxsize)


def parse_records(address: str, content: bytes) -> list[JsonObject]:
    """Return the records of a JSON or CSV file by its extension; an unreadable one becomes an UnreadableRecord.

    Raises:
        DataError: the whole file has another format; the error names the file and, if known, the line.
    """
    extension = next(extension for extension in _TEXTS if address.lower().endswith(extension))
    return _records(address, _TEXTS[extension](address, content))


def table_records(address: str, table: Callable[[], "pa.parquet.ParquetFile"], path: str = "") -> list[JsonObject]:
    """Return the records of a Parquet file, one per row; null and NaN become missing fields.

    `path` is the file's path below its dataset's folder, for references to files in its cells.

    Raises:
        DataError: it isn't a Parquet file.
    """
    try:
        file = table()
        files = file_columns(file.schema_arrow)
        # In batches, so that a large file isn't also in memory as a table.
        batches = file.iter_batches(BATCH, columns=leaves(file, files))
        read = (row for batch in batches for row in _rows(batch))
        rows = [with_references(row, files, path, number) for number, row in enumerate(read)]
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{address}: not a Parquet file ({error})") from error
    return _records(address, (_plain_row(address, number, row) for number, row in enumerate(rows, start=1)))


def _records(address: str, values: Iterable[object]) -> list[JsonObject]:
    return [_record(address, row, value) for row, value in enumerate(values, start=1)]


def _json(address: str, content: bytes) -> list[object]:
    try:
        value = json.loads(_text(address, content), parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        first, _, rest = content.strip().partition(b"\n")
        if re.fullmatch(rb"(?:\xef\xbb\xbf)?\{.*\}\s*", first) and rest:
            return _json_lines(address, content)
        place = f"line {error.lineno}, column {error.colno}: " if isinstance(error, json.JSONDecodeError) else ""
        raise DataError(f"{address}: {place}not JSON ({getattr(error, 'msg', error)})") from error
    return value if isinstance(value, list) else _in_object(address, value)


def _in_object(address: str, value: object) -> list[object]:
    """Return the records of an object: its only array of records, its records by key, or the object itself."""
    # An object may contain other data about the dataset next to its records.
    fields = value if isinstance(value, dict) else {}
    arrays = {name: field for name, field in fields.items() if isinstance(field, list)}
    tables = [field for field in arrays.values() if any(isinstance(entry, dict) for entry in field)]
    if len(tables) == 1:
        return tables[0]
    by_key = {key: field for key, field in fields.items() if isinstance(field, dict)}
    # By default, pandas writes columns whose keys are row numbers.
    if 0 < len(by_key) == len(fields) and not all(key.isdecimal() for row in by_key.values() for key in row):
        return [{ID: key} | record for key, record in by_key.items()]
    if not tables and any(not isinstance(field, list | dict) for field in fields.values()):
        return [{ID: PurePosixPath(address).stem} | fields]
    several = f" with {len(arrays)} arrays ({', '.join(islice(arrays, MAX_NAMED))})" if arrays else ""
    raise DataError(
        f"{address}: expected an array of records, an object with one such array, or an object of records by key, got "
        f'{_kind(value)}{several}. With pandas, write it with to_json(orient="records").'
    )


def _json_lines(address: str, content: bytes) -> list[object]:
    if content.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        with suppress(DataError):
            return _json(address, content)
    # Line by line, so that a large file isn't also in memory as a string. Only b"\n" ends a line.
    values: list[object] = []
    for number, raw in enumerate(io.BytesIO(content), start=1):
        try:
            line = raw.decode("utf-8" if number > 1 else "utf-8-sig")
            if line.strip():
                values.append(json.loads(line, parse_constant=_refuse))
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            problem = f"{address}: line {number}: not JSON ({reason}); expected one record per line"
            values.append(UnreadableRecord(problem))
    return values


def _csv(address: str, content: bytes, delimiters: str = DELIMITERS) -> list[object]:
    """Return one record per row, with strings; empty cells and columns without a name are left out."""
    lines = [*io.StringIO(_text(address, content, by_row=True), newline="")] or [""]
    # Excel reads the delimiter from such a line.
    declared = re.fullmatch(r'"?sep=([^\w\s"]|\t)\1*"?\s*', lines[0], re.IGNORECASE)
    start, delimiter = (1, declared[1]) if declared else (0, _delimiter(lines, delimiters))
    padded = f"{delimiter} " in "".join(lines[start : start + 1])
    rows = partial(csv.reader, delimiter=delimiter, skipinitialspace=padded, strict=True)
    source = iter(lines[start:])
    try:
        columns = [name.strip() for name in next(rows(source), [])]
    except csv.Error as error:
        raise DataError(f"{address}: line {start + 1}: not CSV ({error})") from error
    named = [column for column in columns if column]
    if not named or len(set(named)) < len(named):
        raise DataError(f"{address}: line {start + 1}: expected a header of different column names, got {columns}")
    return _csv_records(address, lines, len(lines) - len([*source]), rows, columns)


def _csv_records(address: str, lines: Sequence[str], at: int, rows: Rows, columns: Sequence[str]) -> list[object]:
    """Return the records of the lines from `at`; a stray quotation mark only affects its own row."""

    def following() -> Iterator[str]:
        nonlocal at
        while at < len(lines):
            at += 1
            yield lines[at - 1]

    def may_begin_a_row(line: str) -> bool:
        try:
            record = _csv_record(columns, next(rows([line])))
            # A mark inside an unquoted cell is probably the end of the broken cell.
            return bool(record) and sum(cell.count('"') for cell in record.values()) <= line.count('""')
        except csv.Error:
            return True
        except ValueError:
            return False

    records: list[object] = []
    reader = rows(following())
    while (first := at) < len(lines):
        try:
            record = _csv_record(columns, next(reader))
            records += [record] if record else []
        except (csv.Error, ValueError) as error:
            if isinstance(error, csv.Error) or at > first + 1:
                # The mark merged all lines up to the next mark into one cell, so the lines after the cell's row are
                # read again.
                at = next((at for at in range(first + 1, len(lines)) if may_begin_a_row(lines[at])), len(lines))
                reader = rows(following())
            until = f" to {at}" if at > first + 1 else ""
            problem = (
                f"{error}. Put quotation marks around a cell that contains a delimiter, without a space before them, "
                "and double a mark inside the cell."
            )
            records.append(UnreadableRecord(f"{address}: line {first + 1}{until}: {problem}"))
    return records


def _delimiter(lines: Sequence[str], delimiters: str) -> str:
    """Return the delimiter that gives most of the first rows as many cells as the header, and more than one."""

    def rows_like_header(delimiter: str) -> int:
        header, *rows = [len(row) for row in islice(csv.reader(lines, delimiter=delimiter), SAMPLED_ROWS + 1)] or [0]
        return rows.count(header) if header > 1 else 0

    return max(delimiters, key=rows_like_header)


def _csv_record(columns: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    """Return a row's cells in named columns; raise ValueError if their number differs from the header's."""
    record = {column: cell for column, cell in zip(columns, cells, strict=False) if column and cell}
    missing = [column for column in columns[len(cells) :] if column]
    if cells and (missing or any(cells[len(columns) :])):
        raise ValueError(f"{len(cells)} cells, and the header has {len(columns)} columns ({', '.join(columns)})")
    return record


def _rows(batch: "pa.RecordBatch") -> list[dict[str, object]]:
    """Return the rows; one with strings that aren't UTF-8, which Parquet can contain, becomes a row with the error."""
    try:
        rows: list[dict[str, object]] = batch.to_pylist()
    except UnicodeDecodeError as error:
        if len(batch) == 1:
            return [{"": error}]
        return [row for place in range(len(batch)) for row in _rows(batch.slice(place, 1))]
    return rows


def _plain_row(address: str, number: int, row: Mapping[str, object]) -> object:
    if isinstance(row.get(""), UnicodeDecodeError):
        return UnreadableRecord(f"{address}: record {number}: a string is not UTF-8")
    plain = {column: _plain(value) for column, value in row.items()}
    return {column: value for column, value in plain.items() if value is not None}


_TEXTS: Mapping[str, Callable[[str, bytes], list[object]]] = {
    ".json": _json,
    ".jsonl": _json_lines,
    ".ndjson": _json_lines,
    ".csv": _csv,
    ".tsv": partial(_csv, delimiters="\t"),
    ".tab": partial(_csv, delimiters="\t"),
}
"""The reader of a file by its extension in lower case."""
PARQUET = ".parquet"
FORMATS = (*_TEXTS, PARQUET)
"""Extensions of files of records, in lower case."""


def _plain(value: object) -> object:
    """Return the value as JSON, or None if JSON can't represent it; the benchmark may not use the column."""
    if isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        # Arrow returns a map as a list of pairs.
        if value and all(isinstance(entry, tuple) for entry in value):
            return _plain(dict(value))
        return [_plain(entry) for entry in value]
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, Decimal | UUID):
        return str(value)
    if isinstance(value, datetime.timedelta):
        return value.total_seconds()
    return value.isoformat() if isinstance(value, datetime.date | datetime.time) else None


def _text(address: str, content: bytes, by_row: bool = False) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        if by_row and error.start > content.find(b"\n") > 0:
            # Only rows with such bytes are refused; a file in another encoding has too many of them.
            return content.decode("utf-8-sig", "surrogateescape")
        raise DataError(f"{address}: is not UTF-8 text ({error.reason} at byte {error.start})") from error


def _record(address: str, row: int, value: object) -> JsonObject:
    if not isinstance(value, dict):
        return UnreadableRecord(
            f"{address}: record {row}: expected an object with the benchmark's columns, got {_kind(value)}"
        )
    try:
        canonical_json(value).encode()
    except UnicodeEncodeError:
        return UnreadableRecord(
            f"{address}: record {row}: contains half of a surrogate pair, or bytes that aren't UTF-8"
        )
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON number")


def _kind(value: object) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")


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
    return frozenset(field.name for field in schema if _is_file(field.type))


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
    """Return whether values are structs of a file's content and other fields, or lists of them."""
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        kind = kind.value_type
    if not pa.types.is_struct(kind) or len(kind) < 2:
        return False
    contents = [field.type for field in kind if field.name == BYTES]
    return any(pa.types.is_binary(content) or pa.types.is_large_binary(content) for content in contents)
