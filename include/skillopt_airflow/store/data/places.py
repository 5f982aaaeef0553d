"""The places of a dataset's files, a local path or a key in a bucket, with the same methods."""

import glob
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from skillopt_airflow.core.errors import DataError, ObjectMissing, StoreError, StoreUnavailable
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.tables.parquet import open_parquet

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from pyarrow.parquet import ParquetFile

ANY = "*"
"""Wildcard for any characters of a name."""


class LocalPlace(NamedTuple):
    """A file or folder on this machine."""

    path: Path
    top: Path | None = None
    """Folder below which links are refused; None if links are allowed."""

    @property
    def address(self) -> str:
        return str(self.path)

    def below(self, name: str) -> "LocalPlace":
        return LocalPlace(self.path / name, self.top)

    def without_links(self) -> "LocalPlace":
        """Refuse links below this folder, because they can lead to any file of this machine."""
        return LocalPlace(self.path, self.path)

    def read(self, hint: str, limit: int | None = None) -> bytes:
        """Return a file's content, or its first `limit` bytes.

        Raises:
            DataError: the file doesn't exist, or a link leads to it; the error ends with the hint.
        """
        with self._data_errors(hint), self._open() as file:
            return file.read(-1 if limit is None else limit)

    def table(self, hint: str) -> "ParquetFile":
        """Open a Parquet file; raise DataError like `read`."""
        from pyarrow.parquet import ParquetFile

        with self._data_errors(hint), self._open() as file:
            # By descriptor, so that no link can replace the file. pyarrow wouldn't close a given file object.
            return ParquetFile(f"/dev/fd/{file.fileno()}")

    def paths(self, pattern: str, hint: str) -> list[str]:
        """Return paths below this folder, including those of `matching`."""
        escaped = ANY.join(map(glob.escape, pattern.split(ANY)))
        return glob.glob(escaped, root_dir=self.path, include_hidden=True)  # noqa: PTH207 - Path.glob enters no links

    def _open(self) -> BufferedReader:
        if self.top is None:
            return self.path.open("rb")
        return open_without_links(self.top, self.path)

    @contextmanager
    def _data_errors(self, hint: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            missing = next((folder for folder in reversed(self.path.parents) if not folder.exists()), None)
            problem = f"the folder {missing} does not exist" if missing else (error.strerror or str(error))
            raise DataError(f"{self.path}: {problem}. {hint}") from error


class StoredPlace(NamedTuple):
    """An object in a bucket, or a folder of objects; see LocalPlace for its methods."""

    store: ObjectStore
    key: str

    @property
    def address(self) -> str:
        return self.store.address(self.key)

    def below(self, name: str) -> "StoredPlace":
        return StoredPlace(self.store, f"{self.key.rstrip('/')}/{name}".lstrip("/"))

    def without_links(self) -> "StoredPlace":
        return self

    def read(self, hint: str, limit: int | None = None) -> bytes:
        with self._data_errors(hint):
            return self.store.get_bytes(self.key) if limit is None else self.store.get_start(self.key, limit)

    def table(self, hint: str) -> "ParquetFile":
        with self._data_errors(hint):
            return open_parquet(self.store, self.key)

    def paths(self, pattern: str, hint: str) -> list[str]:
        """Return the keys below this one that start with the pattern's part before ANY."""
        prefix = self.below("").key
        with self._data_errors(hint):
            return [key.removeprefix(prefix) for key in self.store.list_keys(prefix + pattern.partition(ANY)[0])]

    @contextmanager
    def _data_errors(self, hint: str) -> Iterator[None]:
        try:
            yield
        except StoreUnavailable:
            raise
        except ObjectMissing as error:
            raise DataError(f"{error}. {hint}") from error
        except StoreError as error:
            raise DataError(f"{self.address}: {error}") from error


Place = LocalPlace | StoredPlace


def matching(folder: Place, pattern: str, hint: str) -> list[str]:
    """Return the sorted paths below a folder that match a pattern, in which ANY doesn't match `/`."""
    regex = re.compile("[^/]*".join(map(re.escape, pattern.split(ANY))))
    return sorted(path for path in folder.paths(pattern, hint) if regex.fullmatch(path))


def open_without_links(top: Path, path: Path) -> BufferedReader:
    """Open a plain file below a folder.

    Raises:
        DataError: a part of the path below the folder is a link, or the file isn't plain.
        OSError: the file can't be opened.
    """
    place = top
    for part in path.relative_to(top).parts:
        place /= part
        if place.is_symlink():
            raise DataError(f"{place} is a link to {place.readlink()}. Replace it with the file itself.")
    # The flags also refuse a link that was created since, and avoid waiting for a pipe.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DataError(f"{path} is not a plain file")
    return os.fdopen(descriptor, "rb")


def locate(uri: str, root: Path, client: "S3Client", knob: str = "data.uri") -> Place:
    """Return the place of a local path (relative to `root`), or of a file:// or s3:// URL.

    Raises:
        DataError: the URL has another scheme; the error names the knob.
    """
    if "://" not in uri:
        return LocalPlace(root / uri)
    parts = urlsplit(uri)
    if parts.scheme == "file" and parts.netloc in {"", "localhost"}:
        return LocalPlace(Path(unquote(parts.path)))
    if parts.scheme == "s3" and parts.netloc:
        # Not parsed further, because an S3 key may contain '?', '#' and '%'.
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        return StoredPlace(ObjectStore(client, bucket), key)
    raise DataError(f"{knob} = {uri}: expected a local path, file:///path or s3://bucket/key")
