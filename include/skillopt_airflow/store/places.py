"""Where files of a dataset are: a local path, or a key in a bucket, which are read alike."""

import glob
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote, urlsplit

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.store.objects import ObjectStore, data_errors
from skillopt_airflow.store.stored_parquet import opened

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from pyarrow.parquet import ParquetFile

ANY = "*"
"""Stands for any characters in a name."""


class LocalPlace(NamedTuple):
    """A file or folder on this machine."""

    path: Path

    @property
    def address(self) -> str:
        """The path."""
        return str(self.path)

    def below(self, name: str) -> "LocalPlace":
        """Return the place of a file or folder below this folder."""
        return LocalPlace(self.path / name)

    def read(self, hint: str, limit: int = -1) -> bytes:
        """Return a file's content, or its beginning up to a limit.

        Raises:
            DataError: there is no such file; the text ends in the hint.
        """
        with self._explained(hint), self.path.open("rb") as file:
            return file.read(limit)

    def table(self, hint: str) -> "ParquetFile":
        """Open a Parquet file; raise as `read` does."""
        from pyarrow.parquet import ParquetFile

        with self._explained(hint):
            return ParquetFile(self.path)

    def paths(self, pattern: str, hint: str) -> list[str]:
        """Return paths below this folder, among them all that match the pattern, in which ANY is no `/`."""
        escaped = ANY.join(map(glob.escape, pattern.split(ANY)))
        return glob.glob(escaped, root_dir=self.path, include_hidden=True)  # noqa: PTH207 - Path.glob enters no links

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
        """The s3:// URL."""
        return self.store.address(self.key)

    def below(self, name: str) -> "StoredPlace":
        """Return a place below this one."""
        return StoredPlace(self.store, f"{self.key.rstrip('/')}/{name}".lstrip("/"))

    def read(self, hint: str, limit: int = -1) -> bytes:
        """Return all of the content."""
        with data_errors(self.address, hint):
            return self.store.get_bytes(self.key)

    def table(self, hint: str) -> "ParquetFile":
        """Open a Parquet object."""
        with data_errors(self.address, hint):
            return opened(self.store, self.key)

    def paths(self, pattern: str, hint: str) -> list[str]:
        """Return the keys below this one that begin like the pattern."""
        prefix = self.below("").key
        with data_errors(self.address, hint):
            return [key.removeprefix(prefix) for key in self.store.list_keys(prefix + pattern.partition(ANY)[0])]


Place = LocalPlace | StoredPlace


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
