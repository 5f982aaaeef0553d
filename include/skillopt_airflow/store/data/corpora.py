"""Corpora: read from the user's folder, and stored once under the hash of their files.

A stored corpus consists of archives and a manifest. Sandboxes use the stored one, so later changes of the source don't
affect a run, and the hosts need no shared folder.
"""

import hashlib
import io
import os
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from skillopt_airflow.core.errors import Conflict, DataError
from skillopt_airflow.store.data.places import LocalPlace, locate, open_without_links
from skillopt_airflow.store.keys import CorpusKeys
from skillopt_airflow.store.objects import ObjectStore, data_errors
from skillopt_airflow.tasks.corpus import CorpusFile, CorpusManifest, corpus_manifest, name_flaw

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

HIDDEN = "."
"""Prefix of ignored files and folders, in which programs keep metadata."""
_CHANGED = "Don't change the folder during a run, and start the run again."


class SourceCorpus:
    """A corpus in the user's folder or bucket."""

    def __init__(self, url: str, root: Path, client: "S3Client") -> None:
        """Open a folder; the arguments are those of `located`."""
        self.url = url
        place = locate(url, root, client, "data.corpus")
        self._source = _Folder(place.path) if isinstance(place, LocalPlace) else _Bucket(*place)

    @cached_property
    def manifest(self) -> CorpusManifest:
        """Read all files and return their names, sizes and hashes.

        Raises:
            DataError: the folder doesn't exist, or contains an unusable file, such as a link.
        """
        try:
            return corpus_manifest(self._source.files())
        except DataError as error:
            raise DataError(f"data.corpus = {self.url}: {error}") from error

    @property
    def archive_keys(self) -> Sequence[str]:
        return ()

    def archives(self) -> Iterator[bytes]:
        """Yield the manifest's archives.

        Raises:
            DataError: a file changed since the manifest was made.
        """
        for group in self.manifest.packed():
            body = io.BytesIO()
            with tarfile.open(fileobj=body, mode="w:") as tar:
                for file in group:
                    member = tarfile.TarInfo(file.name)
                    member.size, member.mode = file.size, 0o444
                    tar.addfile(member, io.BytesIO(self._unchanged(file)))
            yield body.getvalue()

    def _unchanged(self, file: CorpusFile) -> bytes:
        content = self._source.read(file.name)
        if hashlib.sha256(content).hexdigest() != file.sha256:
            raise DataError(f"data.corpus = {self.url}: {file.name} changed while the corpus was stored. {_CHANGED}")
        return content


class StoredCorpus:
    """A corpus in a run's bucket."""

    def __init__(self, store: ObjectStore, prefix: str, sha256: str) -> None:
        self._store = store
        self._keys = CorpusKeys(prefix, sha256)

    @cached_property
    def manifest(self) -> CorpusManifest:
        return self._store.get_model(self._keys.manifest, CorpusManifest)

    @property
    def archive_keys(self) -> Sequence[str]:
        return [self._keys.archive(number) for number in range(len(self.manifest.archives))]

    def keep(self) -> None:
        """Update its time of last use, for the cleanup; raise ObjectMissing if it isn't stored."""
        body, etag = self._store.get(self._keys.manifest)
        # By ETag, so that a removed manifest doesn't reappear without its archives. Another task may write the same.
        with suppress(Conflict):
            self._store.replace(self._keys.manifest, body, etag)

    def archives(self) -> Iterator[bytes]:
        for key in self.archive_keys:
            yield self._store.get_bytes(key)


def store_corpus(store: ObjectStore, prefix: str, source: SourceCorpus) -> str:
    """Store a corpus if it isn't stored yet; return its hash, for `StoredCorpus`."""
    keys = CorpusKeys(prefix, source.manifest.sha256)
    archives = {keys.archive(number) for number in range(len(source.manifest.archives))}
    # A concurrent cleanup removes the manifest first.
    if not {keys.manifest, *archives} <= set(store.list_keys(keys.folder)):
        for number, body in enumerate(source.archives()):
            store.put_bytes(keys.archive(number), body)
    # Written last, because it marks the corpus as complete; its time is the last use, for the cleanup.
    store.put_model(keys.manifest, source.manifest)
    return source.manifest.sha256


class _Folder:
    def __init__(self, path: Path) -> None:
        self._path = path

    def files(self) -> list[CorpusFile]:
        if not self._path.is_dir():
            raise DataError(f"the folder {self._path} does not exist. Set data.corpus to a folder of documents.")
        return [self._file(name) for name in self._names("")]

    def read(self, name: str) -> bytes:
        with self._open(name) as file:
            return file.read()

    def _names(self, below: str) -> Iterator[str]:
        """Yield the paths of the files below a folder of the corpus; raise DataError for links."""
        with os.scandir(self._path / below) as scanned:
            entries = sorted(
                (entry for entry in scanned if not entry.name.startswith(HIDDEN)), key=lambda one: one.name
            )
        for entry in entries:
            name = f"{below}{entry.name}"
            if reason := name_flaw(name):
                raise DataError(reason)
            if entry.is_dir(follow_symlinks=False):
                yield from self._names(f"{name}/")
            elif entry.is_file(follow_symlinks=False):
                yield name
            else:
                kind = f"a link to {Path(entry.path).readlink()}" if entry.is_symlink() else "not a plain file"
                raise DataError(f"{name} is {kind}. Replace it with a plain file or folder.")

    def _file(self, name: str) -> CorpusFile:
        with self._open(name) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return CorpusFile(name=name, size=file.tell(), sha256=digest)

    def _open(self, name: str) -> io.BufferedReader:
        path = self._path / name
        try:
            return open_without_links(self._path, path)
        except OSError as error:
            raise DataError(f"{path}: {error.strerror or error}") from error


class _Bucket:
    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = f"{prefix.rstrip('/')}/" if prefix else ""

    def files(self) -> list[CorpusFile]:
        files = []
        with data_errors("", _CHANGED):
            keys = self._store.list_keys(self._prefix)
        for key in keys:
            name = key.removeprefix(self._prefix)
            # An object whose key ends with a slash represents a folder.
            if name.endswith("/") or any(
                part.startswith(HIDDEN) for part in name.split("/") if part not in {".", ".."}
            ):
                continue
            if reason := name_flaw(name):
                raise DataError(reason)
            content = self.read(name)
            files.append(CorpusFile(name=name, size=len(content), sha256=hashlib.sha256(content).hexdigest()))
        return files

    def read(self, name: str) -> bytes:
        key = self._prefix + name
        with data_errors("", _CHANGED):
            return self._store.get_bytes(key)
