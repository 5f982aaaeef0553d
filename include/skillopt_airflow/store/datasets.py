"""The records of a data set, from a local path or an object store."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, NoReturn
from urllib.parse import unquote, urlsplit

from skillopt_airflow.core.config import DataGroup, RegateGroup
from skillopt_airflow.core.errors import DataError, ObjectMissing, StoreError
from skillopt_airflow.core.types import DATA_SPLITS, JsonObject, canonical_json
from skillopt_airflow.store.objects import ObjectStore

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

SplitMode = Literal["ratio", "split_dir"]
Fetch = Callable[[], bytes]

ALL = "all"
"""Key of the records of a file that is still to be cut."""


def read_records(uri: str, root: Path, split_mode: SplitMode, client: "S3Client") -> dict[str, list[JsonObject]]:
    """Return the records by split (train, val, test), or under "all" if one file is to be cut by ratio.

    Args:
        uri: a local path, relative ones from `root`, a file:// or an s3:// address.
        root: the benchmark's folder.
        split_mode: ratio wants one .json or .jsonl file, split_dir a folder with train|val|test/items.json.
        client: reads s3:// addresses.

    Raises:
        DataError: a folder, file or bucket is missing, or a file does not hold records.
    """
    if split_mode == "ratio":
        if not uri.endswith((".json", ".jsonl")):
            raise DataError(
                f"data.uri = {uri}: split_mode ratio expects one file that ends in .json (an array of records) or "
                ".jsonl (a record a line); for a folder with train|val|test/items.json set data.split_mode to split_dir"
            )
        return {ALL: read_file(uri, root, client)}
    if uri.endswith((".json", ".jsonl")):
        raise DataError(
            f"data.uri = {uri}: split_mode split_dir expects a folder with train|val|test/items.json; for one file set "
            "data.split_mode to ratio"
        )
    return {
        split.value: read_file(f"{uri.rstrip('/')}/{split.value}/items.json", root, client) for split in DATA_SPLITS
    }


def read_file(uri: str, root: Path, client: "S3Client") -> list[JsonObject]:
    """Return the records of one .json or .jsonl file; the arguments are those of `read_records`.

    Raises:
        DataError: it is missing, which the error's cause tells, or does not hold records.
    """
    address, fetch = _locate(uri, root, client)
    try:
        text = fetch().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(f"{address}: is not UTF-8 text ({error.reason} at byte {error.start})") from error
    records = _json_lines(address, text) if uri.endswith(".jsonl") else _json_array(address, text)
    return [_record(address, row, record) for row, record in enumerate(records, start=1)]


def partition_uri(data: DataGroup, regate: RegateGroup, date: str) -> str:
    """Return the address of the fresh items of a date (YYYY-MM-DD)."""
    folder = regate.fresh_uri
    if folder is None:
        beside = data.uri if data.split_mode == "split_dir" else data.uri.rpartition("/")[0]
        folder = f"{beside.rstrip('/')}/fresh" if beside else "fresh"
    return f"{folder.rstrip('/')}/date={date}/items.json"


def read_partition(uri: str, root: Path, client: "S3Client") -> list[JsonObject] | None:
    """Return the records of a night's partition; None while it is missing or empty, since items may come late.

    The arguments are those of `read_records`.

    Raises:
        DataError: the file does not hold records.
    """
    try:
        records = read_file(uri, root, client)
    except DataError as error:
        if isinstance(error.__cause__, (ObjectMissing, FileNotFoundError)):
            return None
        raise
    return records if records else None


def _locate(uri: str, root: Path, client: "S3Client") -> tuple[str, Fetch]:
    """Return the file's full address, and a function that reads it."""
    place = located(uri, root, client)
    if isinstance(place, Path):
        return str(place), lambda: _local(place)
    return uri, lambda: _remote(uri, *place)


def located(uri: str, root: Path, client: "S3Client") -> Path | tuple[ObjectStore, str]:
    """Return the path, or bucket and key, that an address leads to; the arguments are those of `read_records`.

    Raises:
        DataError: the address is of no kind that is known.
    """
    if "://" not in uri:
        return root / uri
    parts = urlsplit(uri)
    if parts.scheme == "file" and parts.netloc in {"", "localhost"}:
        return Path(unquote(parts.path))
    if parts.scheme == "s3" and parts.netloc:
        # An S3 key is taken literally: '?', '#' and '%' are legal in it.
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        return ObjectStore(client, bucket), key
    raise DataError(f"data.uri = {uri}: expected a local path, file:///path or s3://bucket/key")


def _local(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        missing = next((folder for folder in reversed(path.parents) if not folder.exists()), None)
        problem = f"the folder {missing} does not exist" if missing else (error.strerror or str(error))
        raise DataError(f"{path}: {problem}; expected a file of records: check data.uri and data.split_mode") from error


def _remote(uri: str, store: ObjectStore, key: str) -> bytes:
    try:
        return store.get_bytes(key)
    except ObjectMissing as error:
        raise DataError(f"{error}; expected a file of records: check data.uri and data.split_mode") from error
    except StoreError as error:
        raise DataError(f"{uri}: {error}") from error


def _json_array(address: str, text: str) -> list[object]:
    try:
        value = json.loads(text, parse_constant=_refuse)
    except json.JSONDecodeError as error:
        raise DataError(f"{address}: line {error.lineno}, column {error.colno}: not JSON ({error.msg})") from error
    except ValueError as error:
        raise DataError(f"{address}: not JSON ({error})") from error
    if not isinstance(value, list):
        raise DataError(f"{address}: expected an array of records, got {_kind(value)}")
    return value


def _json_lines(address: str, text: str) -> list[object]:
    # str.splitlines would also cut at separators such as U+2028, which are legal inside of a JSON text.
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    values = []
    for number, line in lines:
        try:
            values.append(json.loads(line, parse_constant=_refuse))
        except ValueError as error:
            reason = error.msg if isinstance(error, json.JSONDecodeError) else str(error)
            raise DataError(f"{address}: line {number}: not JSON ({reason}); expected one record a line") from error
    return values


def _record(address: str, row: int, value: object) -> JsonObject:
    if not isinstance(value, dict):
        raise DataError(f"{address}: record {row}: expected an object with the benchmark's columns, got {_kind(value)}")
    try:
        canonical_json(value).encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{address}: record {row}: holds half of a surrogate pair, which is no character") from error
    return value


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON number")


def _kind(value: object) -> str:
    names = {dict: "an object", list: "an array", str: "a text", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")
