"""Files that belong to items: read from the data set, and stored once under the hash of their content."""

import hashlib
import re
from collections.abc import Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.resource_groups import DataGroup
from skillopt_airflow.core.types import ItemFile
from skillopt_airflow.store.datasets import folder_of, located
from skillopt_airflow.store.keys import item_file
from skillopt_airflow.store.objects import ObjectStore, data_errors
from skillopt_airflow.store.parquet_cells import Cell, Cells
from skillopt_airflow.store.stored_parquet import opened, opened_at

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from pyarrow.parquet import ParquetFile

MAX_FILE_BYTES = 32 * 1024 * 1024
"""Limit of one file of an item; a container gets all files of its items, and the scorer opens them."""
MAX_PICTURE_BYTES = 20_000_000
"""Limit of all pictures of an item: in Base64 they still fit into one request to any provider."""
REMEMBERED_PICTURES = 8
"""Pictures that are kept while items are read, in the order of their files: many may ask about one page."""
ANY = "*"
"""Stands for any characters in the last part of a path, where the names of a data set follow no rule."""
_NAMED = "the record names this file"


class DataFiles:
    """The files below the folder of a data set, by their path in it."""

    def __init__(self, uri: str, root: Path, client: "S3Client") -> None:
        """Open a folder; the arguments are those of `read_records`.

        Raises:
            DataError: the address is of no kind that is known.
        """
        place = located(uri, root, client)
        self._folder = _LocalFolder(place) if isinstance(place, Path) else _Bucket(*place)
        self._tables: dict[str, Cells] = {}
        self._pictures = lru_cache(maxsize=REMEMBERED_PICTURES)(self._picture)

    @classmethod
    def of(cls, data: DataGroup, root: Path, client: "S3Client") -> "DataFiles":
        """Return the files below the folder of the splits, or of the one file, that `data` names."""
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
        return self._folder.read(f"{folder}/{self._name(folder, name)}".lstrip("/"))

    def _in_table(self, cell: Cell) -> bytes:
        if cell.path not in self._tables:
            self._tables[cell.path] = Cells(partial(self._folder.table, cell.path))
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
        from skillopt_airflow.store.picture_files import page_of, prepared

        file, page = page_of(path)
        content = self.read(file)
        try:
            return prepared(content, name, page)
        except DataError as error:
            raise DataError(f"{path}: {error}") from error

    def _name(self, folder: str, name: str) -> str:
        if ANY not in name:
            return name
        pattern = re.compile(".*".join(map(re.escape, name.split(ANY))))
        found = sorted(one for one in self._folder.names(folder) if pattern.fullmatch(one))
        if len(found) != 1:
            raise DataError(
                f"{self._folder.address}/{folder}: expected one file {name}, found {', '.join(found[:5]) or 'none'}"
            )
        return found[0]


class _LocalFolder:
    def __init__(self, path: Path) -> None:
        self.address = str(path)
        self._path = path

    def table(self, name: str) -> "ParquetFile":
        return opened_at(self._path / name)

    def names(self, folder: str) -> list[str]:
        path = self._path / folder
        return [found.name for found in path.iterdir()] if path.is_dir() else []

    def read(self, name: str) -> bytes:
        path = self._path / name
        try:
            with path.open("rb") as file:
                return _small_enough(str(path), file.read(MAX_FILE_BYTES + 1))
        except OSError as error:
            raise DataError(f"{path}: {error.strerror or error}; {_NAMED}") from error


class _Bucket:
    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = f"{prefix.rstrip('/')}/" if prefix else ""
        self.address = store.address(self._prefix).rstrip("/")

    def table(self, name: str) -> "ParquetFile":
        key = self._prefix + name
        with data_errors(self._store.address(key), _NAMED):
            return opened(self._store, key)

    def names(self, folder: str) -> list[str]:
        below = f"{self._prefix}{folder}/" if folder else self._prefix
        rests = (key.removeprefix(below) for key in self._store.list_keys(below))
        return [rest for rest in rests if "/" not in rest]

    def read(self, name: str) -> bytes:
        address = self._store.address(self._prefix + name)
        with data_errors(address, _NAMED):
            return _small_enough(address, self._store.get_bytes(self._prefix + name))


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
