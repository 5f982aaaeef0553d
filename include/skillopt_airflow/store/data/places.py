"""Where files of a dataset are: a local path, or a key in a bucket, which are read alike."""

import glob
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.store.objects import ObjectStore, data_errors
from skillopt_airflow.store.tables.parquet import opened

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from pyarrow.parquet import ParquetFile

ANY = "*"
"""Stands for any characters in a name."""


class LocalPlace(NamedTuple):
    """A file or folder on this machine."""

    path: Path
    top: Path | None = None
    """A folder from which no link leads on; None if links may."""

    @property
    def address(self) -> str:
        return str(self.path)

    def below(self, name: str) -> "LocalPlace":
        return LocalPlace(self.path / name, self.top)

    def without_links(self) -> "LocalPlace":
        """Return this folder as one below which no link is followed: it may lead to any file of this machine."""
        return LocalPlace(self.path, self.path)

    def read(self, hint: str, limit: int | None = None) -> bytes:
        """Return a file's content, or its beginning up to a limit.

        Raises:
            DataError: there is no such file, or it is behind a link; the text ends in the hint.
        """
        with self._explained(hint), self._opened() as file:
            return file.read(-1 if limit is None else limit)

    def table(self, hint: str) -> "ParquetFile":
        """Open a Parquet file; raise as `read` does."""
        from pyarrow.parquet import ParquetFile

        with self._explained(hint), self._opened() as file:
            # Pyarrow leaves a file open that it's given, so it opens the same one, which no link can replace meanwhile.
            return ParquetFile(f"/dev/fd/{file.fileno()}")

    def paths(self, pattern: str, hint: str) -> list[str]:
        """Return paths below this folder, among them all that match the pattern, in which ANY is no `/`."""
        escaped = ANY.join(map(glob.escape, pattern.split(ANY)))
        return glob.glob(escaped, root_dir=self.path, include_hidden=True)  # noqa: PTH207 - Path.glob enters no links

    def _opened(self) -> BufferedReader:
        if self.top is None:
            return self.path.open("rb")
        return opened_without_links(self.top, self.path)

    @contextmanager
    def _explained(self, hint: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            missing = next((folder for folder in reversed(self.path.parents) if not folder.exists()), None)
            problem = f"the folder {missing} does not exist" if missing else (error.strerror or str(error))
            raise DataError(f"{self.path}: {problem}; {hint}") from error


class StoredPlace(NamedTuple):
    """An object in a bucket, or all whose keys begin with a key and `/`; see LocalPlace for its methods."""

    store: ObjectStore
    key: str

    @property
    def address(self) -> str:
        return self.store.address(self.key)

    def below(self, name: str) -> "StoredPlace":
        return StoredPlace(self.store, f"{self.key.rstrip('/')}/{name}".lstrip("/"))

    def without_links(self) -> "StoredPlace":
        """Return this place, as a bucket has no links."""
        return self

    def read(self, hint: str, limit: int | None = None) -> bytes:
        with data_errors(self.address, hint):
            return self.store.get_bytes(self.key) if limit is None else self.store.get_start(self.key, limit)

    def table(self, hint: str) -> "ParquetFile":
        with data_errors(self.address, hint):
            return opened(self.store, self.key)

    def paths(self, pattern: str, hint: str) -> list[str]:
        """Return the keys below this one that begin like the pattern."""
        prefix = self.below("").key
        with data_errors(self.address, hint):
            return [key.removeprefix(prefix) for key in self.store.list_keys(prefix + pattern.partition(ANY)[0])]


Place = LocalPlace | StoredPlace


def opened_without_links(top: Path, path: Path) -> BufferedReader:
    """Open a plain file below a folder, to which no link leads.

    Raises:
        DataError: a part of the path below the folder is a link, or the file is no plain one.
        OSError: it cannot be opened.
    """
    place = top
    for part in path.relative_to(top).parts:
        place /= part
        if place.is_symlink():
            raise DataError(f"{place} is a link to {place.readlink()}: put the file itself there")
    # Nor is a link followed that has come since, and a pipe is not waited for.
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise DataError(f"{path} is no plain file")
    return os.fdopen(descriptor, "rb")


def located(uri: str, root: Path, client: "S3Client", knob: str = "data.uri") -> Place:
    """Return the place that a URL leads to: a local path, relative ones from `root`, a file:// or an s3:// URL.

    Raises:
        DataError: it is none of these; the text names the knob.
    """
    if "://" not in uri:
        return LocalPlace(root / uri)
    parts = urlsplit(uri)
    if parts.scheme == "file" and parts.netloc in {"", "localhost"}:
        return LocalPlace(Path(unquote(parts.path)))
    if parts.scheme == "s3" and parts.netloc:
        # An S3 key is taken literally: '?', '#' and '%' are legal in it.
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        return StoredPlace(ObjectStore(client, bucket), key)
    raise DataError(f"{knob} = {uri}: expected a local path, file:///path or s3://bucket/key")
