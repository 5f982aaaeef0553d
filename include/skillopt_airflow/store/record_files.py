"""The formats of a file of records: JSON, JSON Lines, CSV and Parquet, told apart by the end of the file's name."""

import csv
import datetime
import io
import json
import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from decimal import Decimal
from itertools import islice
from typing import NoReturn

import pyarrow as pa
import pyarrow.parquet

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.record_fields import UnreadableRecord
from skillopt_airflow.core.types import JsonObject, canonical_json
from skillopt_airflow.store.parquet_cells import file_columns, leaves, with_references

BATCH = 2000
NAMED = 5
"""Arrays that an error names."""

# Of the whole process and for good: set and put back around a file, it would change under another thread's reader. How
# long a record may be is decided when all formats are read.
csv.field_size_limit(sys.maxsize)


def parsed(address: str, content: bytes) -> list[JsonObject]:
    """Return the records of a file of text, JSON or CSV by the end of its name; one that cannot be read says why.

    Args:
        address: of the file, for messages.
        content: what it holds.

    Raises:
        DataError: the file as a whole is in another format; the text names it, and the line as far as it is known.
    """
    extension = next(extension for extension in _TEXTS if address.endswith(extension))
    return _records(address, _TEXTS[extension](address, content))


def table_records(address: str, table: Callable[[], "pa.parquet.ParquetFile"], path: str = "") -> list[JsonObject]:
    """Return the records of a Parquet file, a row each; what is null, or no number, is missing.

    Args:
        address: of the file, for messages.
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
        read = (row for batch in batches for row in batch.to_pylist())
        rows = [with_references(row, files, path, number) for number, row in enumerate(read)]
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{address}: not a Parquet file ({error})") from error
    return _records(address, [_plain_row(address, number, row) for number, row in enumerate(rows, start=1)])


def _records(address: str, values: Iterable[object]) -> list[JsonObject]:
    return [_record(address, row, value) for row, value in enumerate(values, start=1)]


def _json_array(address: str, content: bytes) -> list[object]:
    """Return the array that a file holds, or the one in its object."""
    try:
        value = json.loads(_text(address, content), parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise DataError(f"{address}: line {error.lineno}, column {error.colno}: not JSON ({error.msg})") from error
    except (ValueError, RecursionError) as error:
        raise DataError(f"{address}: not JSON ({error})") from error
    if isinstance(value, list):
        return value
    # An object may say more of the data set beside its records.
    fields = value.items() if isinstance(value, dict) else ()
    arrays = {name: field for name, field in fields if isinstance(field, list)}
    if len(arrays) != 1:
        several = f" with {len(arrays)} arrays ({', '.join(islice(arrays, NAMED))})" if arrays else ""
        raise DataError(f"{address}: expected an array of records, or an object with one, got {_kind(value)}{several}")
    return next(iter(arrays.values()))


def _json_lines(address: str, content: bytes) -> list[object]:
    # Line by line, so that a large file is not in memory as a text, too; only b"\n" ends a line.
    values: list[object] = []
    for number, raw in enumerate(io.BytesIO(content), start=1):
        try:
            line = raw.decode("utf-8" if number > 1 else "utf-8-sig")
            if line.strip():
                values.append(json.loads(line, parse_constant=_refuse))
        except (ValueError, RecursionError) as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            problem = f"{address}: line {number}: not JSON ({reason}); expected one record a line"
            values.append(UnreadableRecord(problem))
    return values


def _csv(address: str, content: bytes) -> list[object]:
    """Return a record a row; every cell is a text, and an empty one is missing."""
    text = _text(address, content)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    records: list[object] = []
    try:
        columns = next(reader, [])
        if not columns or not all(columns) or len(set(columns)) < len(columns):
            raise DataError(f"{address}: line 1: expected a header of different column names, got {columns}")
        if len(columns) == 1 and re.search(r"[;\t]", columns[0]) and not text.startswith('"'):
            problem = f"{address}: line 1: the header is one column, {columns[0]!r}; cells are divided by commas"
            raise DataError(f"{problem}; put quotation marks around a name that holds one of ; and tab")
        for cells in reader:
            if cells and len(cells) != len(columns):
                problem = (
                    f"{address}: line {reader.line_num}: {len(cells)} cells, and the header has {len(columns)} columns "
                    f"({', '.join(columns)}); put quotation marks around a cell that holds a comma, "
                    "with no blank before them"
                )
                records.append(UnreadableRecord(problem))
            elif cells:
                records.append({column: cell for column, cell in zip(columns, cells, strict=True) if cell})
    except csv.Error as error:
        raise DataError(f"{address}: line {reader.line_num}: not CSV ({error})") from error
    return records


def _plain_row(address: str, number: int, row: Mapping[str, object]) -> object:
    record = {}
    for column, value in row.items():
        try:
            record[column] = _plain(value)
        except ValueError as error:
            return UnreadableRecord(f"{address}: record {number}, column {column}: {error}")
    return {column: value for column, value in record.items() if value is not None}


_TEXTS: Mapping[str, Callable[[str, bytes], list[object]]] = {
    ".json": _json_array,
    ".jsonl": _json_lines,
    ".csv": _csv,
}
"""The reader of a file, by the end of its name."""
PARQUET = ".parquet"
FORMATS = (*_TEXTS, PARQUET)
"""Ends of the names of files of records."""


def _plain(value: object) -> object:
    """Return the value as JSON has it; raises ValueError if it has none like it."""
    if value is None or isinstance(value, str | bool | int):
        return value
    if isinstance(value, float):
        if math.isinf(value):
            raise ValueError(f"{value} is no JSON number")
        return None if math.isnan(value) else value
    if isinstance(value, list):
        return [_plain(entry) for entry in value]
    if isinstance(value, dict):
        return {str(key): _plain(entry) for key, entry in value.items()}
    if isinstance(value, Decimal):
        return str(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    raise ValueError(
        "expected texts, numbers, dates, lists or structures of them, or a file in a structure of bytes and path, got "
        f"{type(value).__name__}"
    )


def _text(address: str, content: bytes) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{address}: is not UTF-8 text ({error.reason} at byte {error.start})") from error


def _record(address: str, row: int, value: object) -> JsonObject:
    if not isinstance(value, dict):
        return UnreadableRecord(
            f"{address}: record {row}: expected an object with the benchmark's columns, got {_kind(value)}"
        )
    try:
        canonical_json(value).encode()
    except UnicodeEncodeError:
        return UnreadableRecord(f"{address}: record {row}: holds half of a surrogate pair, which is no character")
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


def _kind(value: object) -> str:
    names = {dict: "an object", list: "an array", str: "a text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")
