"""The records of a data set, from a local path or an object store."""

import glob
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import unquote, urlsplit

from pydantic import ValidationError

from skillopt_airflow.core.documents import flaws
from skillopt_airflow.core.errors import DataError, ObjectMissing
from skillopt_airflow.core.record_fields import UnreadableRecord
from skillopt_airflow.core.resource_groups import DataGroup
from skillopt_airflow.core.service_groups import RegateGroup
from skillopt_airflow.core.types import ALL_DATA_SPLITS, JsonObject, Split
from skillopt_airflow.store.data_manifest import SplitList
from skillopt_airflow.store.objects import ObjectStore, data_errors
from skillopt_airflow.store.record_files import FORMATS, PARQUET, parsed, table_records
from skillopt_airflow.store.stored_parquet import opened_at

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from pyarrow.parquet import ParquetFile

SplitMode = Literal["ratio", "split_dir", "manifest"]
Place = Path | tuple[ObjectStore, str]
"""A path, or a bucket and the key in it."""

ALL = "all"
"""Key of the records of a file that is still to be cut."""
ANY = "*"
"""Stands for any characters in a name of a file's address, but in none of a folder of splits."""
FOLDER = "folder"
"""Key of a record that says where its file is, if a pattern leads into several folders."""
PROBLEMS = 3
"""Flaws of a document that an error names."""
ENDINGS = ", ".join(FORMATS)


def read_records(uri: str, root: Path, split_mode: SplitMode, client: "S3Client") -> dict[str, list[JsonObject]]:
    """Return the records by split, or under "all" if one file is to be cut by ratio.

    Args:
        uri: a local path, relative ones from `root`, a file:// or an s3:// address.
        root: the benchmark's folder.
        split_mode: ratio wants one file of records, split_dir a folder with the folders train, val and test,
            and publish where there is one; manifest takes either.
        client: reads s3:// addresses.

    Raises:
        DataError: a folder, file or bucket is missing, or a file does not hold records.
        StoreUnavailable: the bucket does not answer now.
    """
    one_file = is_one_file(uri)
    if split_mode == "ratio" and not one_file:
        raise DataError(
            f"data.uri = {uri}: split_mode ratio expects one file that ends in {ENDINGS}; for a folder with "
            "train|val|test/items.json set data.split_mode to split_dir"
        )
    if split_mode == "split_dir" and one_file:
        raise DataError(
            f"data.uri = {uri}: split_mode split_dir expects a folder with train|val|test/items.json (or {ENDINGS}); "
            "for one file set data.split_mode to ratio"
        )
    if one_file:
        return {ALL: read_file(uri, root, client, _fixed_folder(uri))}
    folders = {split.value: f"{uri.rstrip('/')}/{split.value}" for split in ALL_DATA_SPLITS}
    optional = folders.pop(Split.PUBLISH)
    found = {
        split: read_file(_items_file(folder, root, client), root, client, uri) for split, folder in folders.items()
    }
    published = read_partition(optional, root, client, uri)
    return found if published is None else found | {Split.PUBLISH.value: published}


def is_one_file(uri: str) -> bool:
    """Return whether an address is that of a file of records, or of several, and not of a folder of splits."""
    return uri.endswith(FORMATS)


def read_file(uri: str, root: Path, client: "S3Client", folder: str = "") -> list[JsonObject]:
    """Return the records of a file, or of all that match; arguments are those of `read_records`, and the folder of
    the data set.

    Raises:
        DataError: it is missing, which the error's cause tells, or does not hold records.
    """
    found = _matching(uri, root, client) if ANY in uri else [uri]
    return [record for one in found for record in _records(one, uri, root, client, folder)]


def _records(uri: str, pattern: str, root: Path, client: "S3Client", folder: str) -> list[JsonObject]:
    """Return the records of one of the files that match; they say in which folder it is, where several are."""
    path, place = _below(folder, uri), located(uri, root, client)
    address = _address(uri, place)
    if uri.endswith(PARQUET):
        records = table_records(address, lambda: _table(uri, place), path)
    else:
        records = parsed(address, _content(uri, place))
    if ANY not in pattern.rpartition("/")[0]:
        return records
    of_folder: JsonObject = {FOLDER: path.rpartition("/")[0]}
    return [record if isinstance(record, UnreadableRecord) else of_folder | record for record in records]


def _matching(uri: str, root: Path, client: "S3Client") -> list[str]:
    """Return the addresses of the files that a pattern stands for, in alphabetical order.

    Raises:
        DataError: there is none, or the bucket cannot be listed.
    """
    fixed = _fixed_folder(uri)
    place = located(fixed, root, client)
    if isinstance(place, Path):
        pattern = "*".join(map(glob.escape, _below(fixed, uri).split(ANY)))
        paths = glob.glob(pattern, root_dir=place, include_hidden=True)  # noqa: PTH207 - Path.glob enters no links
    else:
        store, key = place
        prefix = f"{key}/" if key else ""
        with data_errors(uri, _CHECK):
            paths = [key.removeprefix(prefix) for key in store.list_keys(prefix)]
    wanted = re.compile("[^/]*".join(map(re.escape, _below(fixed, uri).split(ANY))))
    found = sorted(path for path in paths if wanted.fullmatch(path))
    if not found:
        raise DataError(f"data.uri = {uri}: no file matches; {ANY} stands for any characters but /")
    return [f"{fixed}/{path}" if fixed else path for path in found]


def _fixed_folder(uri: str) -> str:
    """Return the folder that all files of an address are below."""
    return uri.partition(ANY)[0].rpartition("/")[0]


def _below(folder: str, uri: str) -> str:
    return uri.removeprefix(folder).lstrip("/")


def read_split_list(uri: str, root: Path, client: "S3Client") -> SplitList:
    """Return the manifest at an address; the arguments are those of `read_records`.

    Raises:
        DataError: it is missing, or holds something else.
    """
    place = located(uri, root, client)
    address = _address(uri, place)
    try:
        return SplitList.model_validate_json(_content(uri, place))
    except DataError as error:
        raise DataError(f"data.split_manifest = {uri}: {error}") from error
    except ValidationError as error:
        raise DataError(
            f"data.split_manifest = {uri}: {address} is no manifest, such as a run's data_manifest.json, and no "
            f'list of the form {{"splits": {{"train": {{"ids": ["a", "b"]}}, ...}}}}: {flaws(error, PROBLEMS)}'
        ) from error


def folder_of(data: DataGroup) -> str:
    """Return the folder of a data set: that of its splits, or the one that its file is in, or that all are below."""
    return _fixed_folder(data.uri) if is_one_file(data.uri) else data.uri


def partition_uri(data: DataGroup, regate: RegateGroup, date: str) -> str:
    """Return the folder of the fresh items of a date (YYYY-MM-DD)."""
    folder = regate.fresh_uri
    if folder is None:
        beside = folder_of(data)
        folder = f"{beside.rstrip('/')}/fresh" if beside else "fresh"
    return f"{folder.rstrip('/')}/date={date}"


def read_partition(
    folder: str, root: Path, client: "S3Client", data_folder: str | None = None
) -> list[JsonObject] | None:
    """Return the records of a night's folder; None while they are missing or empty, since items may come late.

    The arguments are those of `read_records`; a night is a data set by itself unless the folder of one is given.

    Raises:
        DataError: the file does not hold records, or there are two.
    """
    try:
        records = read_file(
            _items_file(folder, root, client), root, client, folder if data_folder is None else data_folder
        )
    except DataError as error:
        if isinstance(error.__cause__, (ObjectMissing, FileNotFoundError)):
            return None
        raise
    return records if records else None


def _items_files(folder: str, root: Path, client: "S3Client") -> Iterator[str]:
    """Yield the addresses of a folder's `items` in all formats in which they are there."""
    uris = (f"{folder}/items{extension}" for extension in FORMATS)
    return (uri for uri in uris if _exists(uri, root, client))


def _items_file(folder: str, root: Path, client: "S3Client") -> str:
    """Return the address of a folder's `items` in whichever format is there, or of the items.json that is missing."""
    found = [*_items_files(folder, root, client)]
    if len(found) > 1:
        raise DataError(f"{folder}: expected one file of records, found {' and '.join(found)}; remove what is old")
    return found[0] if found else f"{folder}/items.json"


def _exists(uri: str, root: Path, client: "S3Client") -> bool:
    place = located(uri, root, client)
    if isinstance(place, Path):
        return place.exists()
    store, key = place
    with data_errors(uri, _CHECK):
        return store.exists(key)


def located(uri: str, root: Path, client: "S3Client", knob: str = "data.uri") -> Place:
    """Return the path, or bucket and key, that an address leads to; the arguments are those of `read_records`.

    An error names the knob.

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
    raise DataError(f"{knob} = {uri}: expected a local path, file:///path or s3://bucket/key")


_CHECK = "expected a file of records: check data.uri and data.split_mode"


def _address(uri: str, place: Place) -> str:
    return str(place) if isinstance(place, Path) else uri


def _table(uri: str, place: Place) -> "ParquetFile":
    with _explained(uri, place):
        return opened_at(place)


def _content(uri: str, place: Place) -> bytes:
    with _explained(uri, place):
        return place.read_bytes() if isinstance(place, Path) else place[0].get_bytes(place[1])


@contextmanager
def _explained(uri: str, place: Place) -> Iterator[None]:
    """Raise DataError, which says what to do, for what is wrong with the place in the block; or StoreUnavailable."""
    try:
        with data_errors(uri, _CHECK):
            yield
    except OSError as error:
        missing = None
        if isinstance(place, Path):
            missing = next((folder for folder in reversed(place.parents) if not folder.exists()), None)
        problem = f"the folder {missing} does not exist" if missing else (error.strerror or str(error))
        raise DataError(f"{place}: {problem}; {_CHECK}") from error
