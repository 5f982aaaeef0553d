"""The formats of a file of records: JSON, JSON Lines, CSV, TSV and Parquet, by the extension of the file's name."""

import csv
import datetime
import io
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from decimal import Decimal
from functools import partial
from itertools import islice
from pathlib import PurePosixPath
from typing import NoReturn
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import JsonObject, canonical_json
from skillopt_airflow.store.data.parquet_cells import file_columns, leaves, with_references
from skillopt_airflow.tasks.record_fields import UnreadableRecord

BATCH = 2000
NAMED = 5
"""Arrays that an error names."""
ID = "id"
"""Column of the key by which an object holds a record, or of the name of the file that is one record."""
DELIMITERS = ",;\t|"
Rows = Callable[[Iterable[str]], Iterator[list[str]]]
"""Reads lines as rows of cells."""
SAMPLED_ROWS = 20
"""Rows that are compared with the header to find the delimiter."""

# Of the whole process and for good: set and put back around a file, it would change under another thread's reader. How
# long a record may be is decided when all formats are read.
csv.field_size_limit(sys.maxsize)


def parsed(address: str, content: bytes) -> list[JsonObject]:
    """Return the records of a file of text, JSON or CSV by the end of its name; one that cannot be read says why.

    Raises:
        DataError: the file as a whole is in another format; the text names it, and the line as far as it is known.
    """
    extension = next(extension for extension in _TEXTS if address.lower().endswith(extension))
    return _records(address, _TEXTS[extension](address, content))


def table_records(address: str, table: Callable[[], "pa.parquet.ParquetFile"], path: str = "") -> list[JsonObject]:
    """Return the records of a Parquet file, a row each; what is null, or no number, is missing.

    Args:
        table: opens it; files in its cells are not read.
        path: of the file below the folder of its data set, for references to files in its cells.

    Raises:
        DataError: it is no Parquet file.
    """
    try:
        file = table()
        files = file_columns(file.schema_arrow)
        # Batch by batch, so that a large file is not in memory as a table, too.
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
    """Return the records of an object: its one array of them, those that it has by key, or the object itself."""
    # An object may say more of the data set next to its records.
    fields = value if isinstance(value, dict) else {}
    arrays = {name: field for name, field in fields.items() if isinstance(field, list)}
    tables = [field for field in arrays.values() if any(isinstance(entry, dict) for entry in field)]
    if len(tables) == 1:
        return tables[0]
    by_key = {key: field for key, field in fields.items() if isinstance(field, dict)}
    # The columns that pandas writes by default have the numbers of rows as keys.
    if 0 < len(by_key) == len(fields) and not all(key.isdecimal() for row in by_key.values() for key in row):
        return [{ID: key} | record for key, record in by_key.items()]
    if not tables and any(not isinstance(field, list | dict) for field in fields.values()):
        return [{ID: PurePosixPath(address).stem} | fields]
    several = f" with {len(arrays)} arrays ({', '.join(islice(arrays, NAMED))})" if arrays else ""
    raise DataError(
        f"{address}: expected an array of records, an object with one such array, or an object of records by key, got "
        f'{_kind(value)}{several}; with pandas write it by to_json(orient="records")'
    )


def _json_lines(address: str, content: bytes) -> list[object]:
    if content.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        with suppress(DataError):
            return _json(address, content)
    # Line by line, so that a large file is not in memory as a text, too; only b"\n" ends a line.
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
    """Return a record per row; every cell is a string, and an empty one is missing, as is a column without a name."""
    lines = [*io.StringIO(_text(address, content, by_row=True), newline="")] or [""]
    # Excel takes the delimiter from such a line.
    told = re.fullmatch(r'"?sep=([^\w\s"]|\t)\1*"?\s*', lines[0], re.IGNORECASE)
    start, delimiter = (1, told[1]) if told else (0, _delimiter(lines, delimiters))
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
    """Return the records of the lines from a place on; a stray quotation mark costs its row and no other."""

    def following() -> Iterator[str]:
        nonlocal at
        while at < len(lines):
            at += 1
            yield lines[at - 1]

    def may_begin_a_row(line: str) -> bool:
        try:
            record = _csv_record(columns, next(rows([line])))
            # A mark within a cell that has none around it is most likely the end of the broken cell.
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
                # The mark makes one cell of all lines up to the next mark: they are read again, but for the cell's own.
                at = next((at for at in range(first + 1, len(lines)) if may_begin_a_row(lines[at])), len(lines))
                reader = rows(following())
            until = f" to {at}" if at > first + 1 else ""
            problem = (
                f"{error}; put quotation marks around a cell that holds a delimiter, with no space before them, and "
                "write a mark inside the cell twice"
            )
            records.append(UnreadableRecord(f"{address}: line {first + 1}{until}: {problem}"))
    return records


def _delimiter(lines: Sequence[str], delimiters: str) -> str:
    """Return the delimiter that cuts most of the first rows like the header, into several cells."""

    def rows_like_header(delimiter: str) -> int:
        header, *rows = [len(row) for row in islice(csv.reader(lines, delimiter=delimiter), SAMPLED_ROWS + 1)] or [0]
        return rows.count(header) if header > 1 else 0

    return max(delimiters, key=rows_like_header)


def _csv_record(columns: Sequence[str], cells: Sequence[str]) -> dict[str, str]:
    """Return what a row has in its named columns; raise ValueError if it has other cells than the header."""
    record = {column: cell for column, cell in zip(columns, cells, strict=False) if column and cell}
    missing = [column for column in columns[len(cells) :] if column]
    if cells and (missing or any(cells[len(columns) :])):
        raise ValueError(f"{len(cells)} cells, and the header has {len(columns)} columns ({', '.join(columns)})")
    return record


def _rows(batch: "pa.RecordBatch") -> list[dict[str, object]]:
    """Return the rows; one with text that isn't UTF-8, which Parquet files can hold, is lost alone."""
    try:
        rows: list[dict[str, object]] = batch.to_pylist()
    except UnicodeDecodeError as error:
        if len(batch) == 1:
            return [{"": error}]
        return [row for place in range(len(batch)) for row in _rows(batch.slice(place, 1))]
    return rows


def _plain_row(address: str, number: int, row: Mapping[str, object]) -> object:
    if isinstance(row.get(""), UnicodeDecodeError):
        return UnreadableRecord(f"{address}: record {number}: holds text that isn't UTF-8")
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
"""The reader of a file, by the extension of its name, in whichever case it is."""
PARQUET = ".parquet"
FORMATS = (*_TEXTS, PARQUET)
"""Extensions of files of records, in lower case."""


def _plain(value: object) -> object:
    """Return the value as JSON has it, or None if JSON has none like it, as of bytes: a task may not use the column."""
    if isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        # Arrow has a map as a list of pairs.
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
            # A row with such bytes is refused alone; a file in another encoding has too many of them.
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
        return UnreadableRecord(f"{address}: record {row}: holds half of a surrogate pair, or bytes that aren't UTF-8")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


def _kind(value: object) -> str:
    names = {dict: "an object", list: "an array", str: "a text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")
