"""Files of items: read from the dataset, and stored once under the hash of their content."""

import hashlib
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from skillopt_airflow.core.config.resource_groups import DataGroup
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import ItemFile
from skillopt_airflow.store.data.datasets import folder_of
from skillopt_airflow.store.data.picture_files import page_of, picture_reader, prepare_picture
from skillopt_airflow.store.data.places import ANY, locate, matching
from skillopt_airflow.store.data.record_files import Cell, Cells
from skillopt_airflow.store.keys import item_file
from skillopt_airflow.store.objects import ObjectStore

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

MAX_FILE_BYTES = 32 * 1024 * 1024
"""Limit of one file of an item."""
MAX_PICTURE_BYTES = 20_000_000
"""Limit of all pictures of an item; in Base64 they still fit into one request to any provider."""
CACHED_PICTURES = 8
"""Size of the cache of pictures while items are read, because many items may ask about the same page."""
_NAMED = "The record names this file."


class DataFiles:
    """The files below a dataset's folder, by their path in it."""

    def __init__(self, uri: str, root: Path, client: "S3Client") -> None:
        self._folder = locate(uri, root, client).without_links()
        self._tables: dict[str, Cells] = {}
        self._reader = picture_reader()
        self._pictures = lru_cache(maxsize=CACHED_PICTURES)(self._picture)

    @classmethod
    def of(cls, data: DataGroup, root: Path, client: "S3Client") -> "DataFiles":
        return cls(folder_of(data), root, client)

    def read(self, path: str) -> bytes:
        """Return the content of a file, or of a file in a table's cell.

        Raises:
            DataError: the path is outside the folder, or doesn't name one file of at most MAX_FILE_BYTES.
            StoreUnavailable: the bucket doesn't respond now.
        """
        cell = Cell.of(path)
        file = path if cell is None else cell.path
        folder, _, name = file.rpartition("/")
        if any(part in {"", ".", ".."} for part in file.split("/")) or ANY in folder:
            raise DataError(f"{path!r}: expected a path below {self._folder.address}, with {ANY} only in its last part")
        if cell is not None:
            return self._in_table(cell)
        place = self._folder.below(f"{folder}/{self._name(folder, name)}".lstrip("/"))
        return _check_size(place.address, place.read(_NAMED, MAX_FILE_BYTES + 1))

    def _in_table(self, cell: Cell) -> bytes:
        if cell.path not in self._tables:
            self._tables[cell.path] = Cells(partial(self._folder.below(cell.path).table, _NAMED))
        return _check_size(str(cell), self._tables[cell.path].read(cell))

    def contents(self, files: Sequence[ItemFile]) -> dict[str, bytes]:
        """Return the contents of an item's files by name, with pictures converted for all providers.

        Raises:
            DataError: see `read`; or a picture is damaged, or the pictures are too large.
            StoreUnavailable: the bucket doesn't respond now.
        """
        contents = {
            file.name: self._pictures(file.path, file.name) if file.picture else self.read(file.path) for file in files
        }
        total = sum(len(contents[file.name]) for file in files if file.picture)
        if total > MAX_PICTURE_BYTES:
            raise DataError(f"the pictures have {total:,} bytes in total. The limit is {MAX_PICTURE_BYTES:,}.")
        return contents

    def _picture(self, path: str, name: str) -> bytes:
        file, page = page_of(path)
        content = self.read(file)
        try:
            return prepare_picture(content, name, page, self._reader)
        except DataError as error:
            raise DataError(f"{path}: {error}") from error

    def _name(self, folder: str, name: str) -> str:
        if ANY not in name:
            return name
        matches = matching(self._folder.below(folder), name, _NAMED)
        if len(matches) != 1:
            raise DataError(
                f"{self._folder.address}/{folder}: expected one file {name}, found {', '.join(matches[:5]) or 'none'}"
            )
        return matches[0]


def _check_size(address: str, content: bytes) -> bytes:
    if len(content) > MAX_FILE_BYTES:
        raise DataError(f"{address}: the file has more than {MAX_FILE_BYTES} bytes, the limit of an item's file")
    return content


class FileStore:
    """The stored files of all items, each once, under the hash of its content."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    def put(self, content: bytes) -> str:
        """Store a file if it isn't stored yet; return its SHA-256, for `get`."""
        digest = hashlib.sha256(content).hexdigest()
        key = item_file(self._prefix, digest)
        if not self._store.exists(key):
            self._store.put_bytes(key, content)
        return digest

    def get(self, digest: str) -> bytes:
        return self._store.get_bytes(item_file(self._prefix, digest))
