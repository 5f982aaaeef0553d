"""The records of a dataset, from a local path or an object store."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import ValidationError

from skillopt_airflow.core.config.resource_groups import DataGroup
from skillopt_airflow.core.config.service_groups import RegateGroup
from skillopt_airflow.core.errors import DataError, ObjectMissing
from skillopt_airflow.core.values.documents import flaws
from skillopt_airflow.core.values.text import storable
from skillopt_airflow.core.values.types import ALL_DATA_SPLITS, JsonObject, Split
from skillopt_airflow.store.data.data_manifest import ListedItems, SplitList
from skillopt_airflow.store.data.places import ANY, locate, matching
from skillopt_airflow.store.data.record_files import FORMATS, PARQUET, parse_records, table_records
from skillopt_airflow.tasks.record_fields import UnreadableRecord

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

SplitMode = Literal["ratio", "split_dir", "manifest"]

ALL = "all"
"""Key of the records of a file that is split later."""
FOLDER = "folder"
"""A record's key for the folder of its file, if a pattern matches several folders."""
PROBLEMS = 3
"""Limit of a document's flaws in an error."""
EXTENSIONS = ", ".join(FORMATS)


def read_records(uri: str, root: Path, split_mode: SplitMode, client: "S3Client") -> dict[str, list[JsonObject]]:
    """Return the records by split, or under "all" for one file.

    Args:
        uri: a local path (relative to `root`), or a file:// or s3:// URL.
        split_mode: ratio needs one file of records; split_dir a folder with the folders train, val, test and
            optionally publish; manifest accepts both.

    Raises:
        DataError: a folder, file or bucket is missing, or a file doesn't contain records.
        StoreUnavailable: the bucket doesn't respond now.
    """
    one_file = is_one_file(uri)
    if split_mode == "ratio" and not one_file:
        raise DataError(
            f"data.uri = {uri}: split_mode ratio expects one file with an extension of {EXTENSIONS}. For a folder with "
            "train|val|test/items.json, set data.split_mode to split_dir."
        )
    if split_mode == "split_dir" and one_file:
        raise DataError(
            f"data.uri = {uri}: split_mode split_dir expects a folder with train|val|test/items.json (or "
            f"{EXTENSIONS}). For one file, set data.split_mode to ratio."
        )
    if one_file:
        return {ALL: read_file(uri, root, client, _fixed_folder(uri))}
    folders = {split.value: f"{uri.rstrip('/')}/{split.value}" for split in ALL_DATA_SPLITS}
    optional = folders.pop(Split.PUBLISH)
    records = {
        split: read_file(_items_file(folder, root, client), root, client, uri) for split, folder in folders.items()
    }
    publish = read_partition(optional, root, client, uri)
    return records if publish is None else records | {Split.PUBLISH.value: publish}


def is_one_file(uri: str) -> bool:
    """Return whether a URL names a file of records, or a pattern of files, rather than a folder of splits."""
    return uri.lower().endswith(FORMATS)


def read_file(uri: str, root: Path, client: "S3Client", folder: str = "") -> list[JsonObject]:
    """Return the records of a file, or of all files that match a pattern.

    The arguments are those of `read_records`; `folder` is the dataset's.

    Raises:
        DataError: the file is missing (see the error's cause), or doesn't contain records.
    """
    urls = _matching(uri, root, client) if ANY in uri else [uri]
    return [record for url in urls for record in _records(url, uri, root, client, folder)]


def _records(uri: str, pattern: str, root: Path, client: "S3Client", folder: str) -> list[JsonObject]:
    """Return the records of one file, each with its FOLDER if the pattern matches several folders."""
    path, place = storable(_below(folder, uri)), locate(uri, root, client)
    address = storable(place.address)
    if uri.lower().endswith(PARQUET):
        records = table_records(address, lambda: place.table(_CHECK), path)
    else:
        records = parse_records(address, place.read(_CHECK))
    if ANY not in pattern.rpartition("/")[0]:
        return records
    of_folder: JsonObject = {FOLDER: path.rpartition("/")[0]}
    return [record if isinstance(record, UnreadableRecord) else of_folder | record for record in records]


def _matching(uri: str, root: Path, client: "S3Client") -> list[str]:
    """Return the URLs of the files that match a pattern, in alphabetical order."""
    fixed = _fixed_folder(uri)
    paths = matching(locate(fixed, root, client), _below(fixed, uri), _CHECK)
    if not paths:
        raise DataError(f"data.uri = {uri}: no file matches. {ANY} matches any characters except /.")
    return [f"{fixed}/{path}" if fixed else path for path in paths]


def _fixed_folder(uri: str) -> str:
    return uri.partition(ANY)[0].rpartition("/")[0]


def _below(folder: str, uri: str) -> str:
    return uri.removeprefix(folder).lstrip("/")


def read_split_list(uri: str, root: Path, client: "S3Client") -> SplitList:
    """Return the manifest at a URL, or that of a folder with train|val|test/items.json.

    The arguments are those of `read_records`. The files of a folder contain IDs or, like SkillOpt's
    (https://github.com/microsoft/SkillOpt/tree/main/data), objects with an `id`.

    Raises:
        DataError: it's missing or invalid.
    """
    folders = {split: f"{uri.rstrip('/')}/{split}" for split in ALL_DATA_SPLITS}

    def content(file: str) -> bytes:
        return locate(file, root, client).read(_CHECK)

    try:
        lists = {
            split: ListedItems.model_validate_json(b'{"ids": %b}' % content(f"{folder}/items.json"))
            for split, folder in folders.items()
            if _items_files(folder, root, client)
        }
        return SplitList(splits=lists) if lists else SplitList.model_validate_json(content(uri))
    except DataError as error:
        raise DataError(f"data.split_manifest = {uri}: {error}") from error
    except ValidationError as error:
        raise DataError(
            f"data.split_manifest = {uri}: {flaws(error, PROBLEMS)}. Set it to a manifest, such as a run's "
            "data_manifest.json; to a folder with lists of ids in train|val|test/items.json; or to a file such as "
            '{"splits": {"train": {"ids": ["a", "b"]}, ...}}.'
        ) from error


def folder_of(data: DataGroup) -> str:
    """Return the folder of a dataset: of its splits, or of its file, or the common one of all files."""
    return _fixed_folder(data.uri) if is_one_file(data.uri) else data.uri


def partition_uri(data: DataGroup, regate: RegateGroup, date: str) -> str:
    """Return the folder of the fresh items of a date (YYYY-MM-DD)."""
    folder = regate.fresh_uri
    if folder is None:
        parent = folder_of(data)
        folder = f"{parent.rstrip('/')}/fresh" if parent else "fresh"
    return f"{folder.rstrip('/')}/date={date}"


def read_partition(
    folder: str, root: Path, client: "S3Client", data_folder: str | None = None
) -> list[JsonObject] | None:
    """Return the records of a night's folder, or None if they are missing or empty, because items may be late.

    The arguments are those of `read_records`. Without `data_folder`, the night is a separate dataset.

    Raises:
        DataError: the file doesn't contain records, or there are two files.
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


def _items_files(folder: str, root: Path, client: "S3Client") -> list[str]:
    names = matching(locate(folder, root, client), f"items.{ANY}", _CHECK)
    return [f"{folder}/{name}" for name in names if is_one_file(name)]


def _items_file(folder: str, root: Path, client: "S3Client") -> str:
    """Return the URL of a folder's `items` in any format; that of a missing items.json if there is none."""
    files = _items_files(folder, root, client)
    if len(files) > 1:
        raise DataError(f"{folder}: expected one file of records, found {' and '.join(files)}. Remove the old one.")
    return files[0] if files else f"{folder}/items.json"


_CHECK = "expected a file of records. Check data.uri and data.split_mode."
