"""Files that belong to items: read from the data set, and stored once under the hash of their content."""

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from skillopt_airflow.core.config.resource_groups import DataGroup
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import ItemFile
from skillopt_airflow.store.data.datasets import folder_of
from skillopt_airflow.store.data.parquet_cells import Cell, Cells
from skillopt_airflow.store.data.places import ANY, located
from skillopt_airflow.store.keys import item_file
from skillopt_airflow.store.objects import ObjectStore

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from skillopt_airflow.limited_process import LimitedProcess

MAX_FILE_BYTES = 32 * 1024 * 1024
"""Limit of one file of an item; a container gets all files of its items, and the scorer opens them."""
MAX_PICTURE_BYTES = 20_000_000
"""Limit of all pictures of an item: in Base64 they still fit into one request to any provider."""
REMEMBERED_PICTURES = 8
"""Pictures that are kept while items are read, in the order of their files: many may ask about one page."""
_NAMED = "the record names this file"


class DataFiles:
    """The files below the folder of a data set, by their path in it."""

    def __init__(self, uri: str, root: Path, client: "S3Client") -> None:
        """Open a folder; the arguments are those of `read_records`.

        Raises:
            DataError: the address is of no kind that is known.
        """
        self._folder = located(uri, root, client).without_links()
        self._tables: dict[str, Cells] = {}
        self._reader: LimitedProcess | None = None
        self._pictures = lru_cache(maxsize=REMEMBERED_PICTURES)(self._picture)

    @classmethod
    def of(cls, data: DataGroup, root: Path, client: "S3Client") -> "DataFiles":
        return cls(folder_of(data), root, client)

    def read(self, path: str) -> bytes:
        """Return the content of a file, or of one in the cell of a table.

        Raises:
            DataError: the path leads out of the folder; or not one file, with at most MAX_FILE_BYTES, is there.
            StoreUnavailable: the bucket does not answer now.
        """
        cell = Cell.of(path)
        file = path if cell is None else cell.path
        folder, _, name = file.rpartition("/")
        if any(part in {"", ".", ".."} for part in file.split("/")) or ANY in folder:
            raise DataError(f"{path!r}: expected a path below {self._folder.address}, with {ANY} in its last part only")
        if cell is not None:
            return self._in_table(cell)
        place = self._folder.below(f"{folder}/{self._name(folder, name)}".lstrip("/"))
        return _small_enough(place.address, place.read(_NAMED, MAX_FILE_BYTES + 1))

    def _in_table(self, cell: Cell) -> bytes:
        if cell.path not in self._tables:
            self._tables[cell.path] = Cells(partial(self._folder.below(cell.path).table, _NAMED))
        return _small_enough(str(cell), self._tables[cell.path].read(cell))

    def contents(self, files: Sequence[ItemFile]) -> dict[str, bytes]:
        """Return what an item's files hold, by name; its pictures as every provider takes them.

        Raises:
            DataError: as `read` does; or a picture is damaged or too large, or all together are.
            StoreUnavailable: the bucket does not answer now.
        """
        found = {
            file.name: self._pictures(file.path, file.name) if file.picture else self.read(file.path) for file in files
        }
        together = sum(len(found[file.name]) for file in files if file.picture)
        if together > MAX_PICTURE_BYTES:
            raise DataError(f"the pictures have {together:,} bytes together; they may have {MAX_PICTURE_BYTES:,}")
        return found

    def _picture(self, path: str, name: str) -> bytes:
        from skillopt_airflow.store.data.picture_files import page_of, picture_reader, prepared

        file, page = page_of(path)
        content = self.read(file)
        self._reader = self._reader or picture_reader()
        try:
            return prepared(content, name, page, self._reader)
        except DataError as error:
            raise DataError(f"{path}: {error}") from error

    def _name(self, folder: str, name: str) -> str:
        if ANY not in name:
            return name
        pattern = re.compile("[^/]*".join(map(re.escape, name.split(ANY))))
        there = self._folder.below(folder).paths(name, _NAMED)
        found = sorted(one for one in there if pattern.fullmatch(one))
        if len(found) != 1:
            raise DataError(
                f"{self._folder.address}/{folder}: expected one file {name}, found {', '.join(found[:5]) or 'none'}"
            )
        return found[0]


def _small_enough(address: str, content: bytes) -> bytes:
    if len(content) > MAX_FILE_BYTES:
        raise DataError(f"{address}: an item's file may have {MAX_FILE_BYTES} bytes; this one has more")
    return content


class FileStore:
    """The stored files of all items, each once, under the hash of its content."""

    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = prefix

    def put(self, content: bytes) -> str:
        """Store what is not stored yet; returns its hex SHA-256, under which `get` finds it."""
        digest = hashlib.sha256(content).hexdigest()
        key = item_file(self._prefix, digest)
        if not self._store.exists(key):
            self._store.put_bytes(key, content)
        return digest

    def get(self, digest: str) -> bytes:
        """Return what was stored.

        Raises:
            ObjectMissing: nothing was.
        """
        return self._store.get_bytes(item_file(self._prefix, digest))
