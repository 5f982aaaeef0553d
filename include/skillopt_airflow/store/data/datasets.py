"""The records of a data set, from a local path or an object store."""

import re
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
from skillopt_airflow.store.data.places import ANY, located
from skillopt_airflow.store.data.record_files import FORMATS, PARQUET, parsed, table_records
from skillopt_airflow.tasks.record_fields import UnreadableRecord

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

SplitMode = Literal["ratio", "split_dir", "manifest"]

ALL = "all"
"""Key of the records of a file that is still to be cut."""
FOLDER = "folder"
"""Key of a record that says where its file is, if a pattern leads into several folders."""
PROBLEMS = 3
"""Flaws of a document that an error names."""
ENDINGS = ", ".join(FORMATS)


def read_records(uri: str, root: Path, split_mode: SplitMode, client: "S3Client") -> dict[str, list[JsonObject]]:
    """Return the records by split, or under "all" if one file is to be cut by ratio.

    Args:
        uri: a local path, relative ones from `root`, a file:// or an s3:// address.
        split_mode: ratio wants one file of records, split_dir a folder with the folders train, val and test,
            and publish where there is one; manifest takes either.

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
    return uri.lower().endswith(FORMATS)


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
    path, place = storable(_below(folder, uri)), located(uri, root, client)
    address = storable(place.address)
    if uri.lower().endswith(PARQUET):
        records = table_records(address, lambda: place.table(_CHECK), path)
    else:
        records = parsed(address, place.read(_CHECK))
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
    pattern = _below(fixed, uri)
    wanted = re.compile("[^/]*".join(map(re.escape, pattern.split(ANY))))
    found = sorted(path for path in located(fixed, root, client).paths(pattern, _CHECK) if wanted.fullmatch(path))
    if not found:
        raise DataError(f"data.uri = {uri}: no file matches; {ANY} stands for any characters but /")
    return [f"{fixed}/{path}" if fixed else path for path in found]


def _fixed_folder(uri: str) -> str:
    return uri.partition(ANY)[0].rpartition("/")[0]


def _below(folder: str, uri: str) -> str:
    return uri.removeprefix(folder).lstrip("/")


def read_split_list(uri: str, root: Path, client: "S3Client") -> SplitList:
    """Return the manifest at a URL, or that of a folder with train|val|test/items.json; arguments as `read_records`.

    SkillOpt publishes such folders, in which the files hold objects with an id
    (https://github.com/microsoft/SkillOpt/tree/main/data); ids alone will do.

    Raises:
        DataError: it is missing, or holds something else.
    """
    folders = {split: f"{uri.rstrip('/')}/{split}" for split in ALL_DATA_SPLITS}

    def content(file: str) -> bytes:
        return located(file, root, client).read(_CHECK)

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
            f"data.split_manifest = {uri}: it is no manifest, such as a run's data_manifest.json, no folder with lists "
            'of ids in train|val|test/items.json, and no list of the form {"splits": {"train": {"ids": ["a", "b"]}, '
            f"...}}}}: {flaws(error, PROBLEMS)}"
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


def _items_files(folder: str, root: Path, client: "S3Client") -> list[str]:
    names = located(folder, root, client).paths(f"items.{ANY}", _CHECK)
    return [f"{folder}/{name}" for name in sorted(names) if is_one_file(name) and "/" not in name]


def _items_file(folder: str, root: Path, client: "S3Client") -> str:
    """Return the address of a folder's `items` in whichever format is there, or of the items.json that is missing."""
    found = _items_files(folder, root, client)
    if len(found) > 1:
        raise DataError(f"{folder}: expected one file of records, found {' and '.join(found)}; remove what is old")
    return found[0] if found else f"{folder}/items.json"


_CHECK = "expected a file of records: check data.uri and data.split_mode"
