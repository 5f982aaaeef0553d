"""Corpora: read from where the user keeps them, and stored once under the hash of what they hold.

A stored corpus is some archives and a manifest. Whoever runs sandboxes stages it from there, so a run does not change
with its source, and needs no folder that every host can see.
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
from skillopt_airflow.store.data.places import LocalPlace, located, opened_without_links
from skillopt_airflow.store.keys import CorpusKeys
from skillopt_airflow.store.objects import ObjectStore, data_errors
from skillopt_airflow.tasks.corpus import CorpusFile, CorpusManifest, corpus_manifest, name_flaw

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

HIDDEN = "."
"""Files and folders whose names begin so are no part of a corpus: programs leave their notes in them."""
_CHANGED = "leave the folder alone and start the run again"


class SourceCorpus:
    """A corpus where the user keeps it."""

    def __init__(self, address: str, root: Path, client: "S3Client") -> None:
        """Open a folder.

        Args:
            address: a local path, relative ones from `root`, a file:// or an s3:// address.

        Raises:
            DataError: the address is of no kind that is known.
        """
        self.address = address
        place = located(address, root, client, "data.corpus")
        self._source = _Folder(place.path) if isinstance(place, LocalPlace) else _Bucket(*place)

    @cached_property
    def manifest(self) -> CorpusManifest:
        """Return the names, sizes and hashes of all files, which are read for it.

        Raises:
            DataError: there is no such folder, or one of its files is of no use, such as a link; the text names it.
        """
        try:
            return corpus_manifest(self._source.files())
        except DataError as error:
            raise DataError(f"data.corpus = {self.address}: {error}") from error

    @property
    def archive_keys(self) -> Sequence[str]:
        return ()

    def archives(self) -> Iterator[bytes]:
        """Yield the archives that the manifest tells of.

        Raises:
            DataError: a file is not what it was when the manifest was made.
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
            raise DataError(
                f"data.corpus = {self.address}: {file.name} changed while the corpus was stored; {_CHANGED}"
            )
        return content


class StoredCorpus:
    """A corpus as a run keeps it."""

    def __init__(self, store: ObjectStore, prefix: str, sha256: str) -> None:
        self._store = store
        self._keys = CorpusKeys(prefix, sha256)

    @cached_property
    def manifest(self) -> CorpusManifest:
        """Return what it holds; raises ObjectMissing if it is not stored."""
        return self._store.get_model(self._keys.manifest, CorpusManifest)

    @property
    def archive_keys(self) -> Sequence[str]:
        return [self._keys.archive(number) for number in range(len(self.manifest.archives))]

    def keep(self) -> None:
        """Tell the cleanup that it is in use; raises ObjectMissing if it is not stored."""
        body, etag = self._store.get(self._keys.manifest)
        # By its tag, so that it does not come back without the archives; another task may tell the same meanwhile.
        with suppress(Conflict):
            self._store.replace(self._keys.manifest, body, etag)

    def archives(self) -> Iterator[bytes]:
        for key in self.archive_keys:
            yield self._store.get_bytes(key)


def store_corpus(store: ObjectStore, prefix: str, source: SourceCorpus) -> str:
    """Store a corpus that is not stored yet; return the hash under which `StoredCorpus` finds it.

    Raises:
        DataError: as `SourceCorpus` does.
    """
    keys = CorpusKeys(prefix, source.manifest.sha256)
    archives = {keys.archive(number) for number in range(len(source.manifest.archives))}
    # A cleanup may be removing it, the manifest first.
    if not {keys.manifest, *archives} <= set(store.list_keys(keys.folder)):
        for number, body in enumerate(source.archives()):
            store.put_bytes(keys.archive(number), body)
    # It comes last and says that the corpus is complete; written again, it tells the cleanup that the corpus is used.
    store.put_model(keys.manifest, source.manifest)
    return source.manifest.sha256


class _Folder:
    def __init__(self, path: Path) -> None:
        self._path = path

    def files(self) -> list[CorpusFile]:
        if not self._path.is_dir():
            raise DataError(f"there is no folder {self._path}; expected one with the documents")
        return [self._file(name) for name in self._names("")]

    def read(self, name: str) -> bytes:
        with self._opened(name) as file:
            return file.read()

    def _names(self, below: str) -> Iterator[str]:
        """Yield the paths of the files below a folder of the corpus, none of which is a link."""
        with os.scandir(self._path / below) as entries:
            found = sorted((entry for entry in entries if not entry.name.startswith(HIDDEN)), key=lambda one: one.name)
        for entry in found:
            name = f"{below}{entry.name}"
            if reason := name_flaw(name):
                raise DataError(reason)
            if entry.is_dir(follow_symlinks=False):
                yield from self._names(f"{name}/")
            elif entry.is_file(follow_symlinks=False):
                yield name
            else:
                what = f"a link to {Path(entry.path).readlink()}" if entry.is_symlink() else "no plain file"
                raise DataError(f"{name} is {what}; a corpus holds plain files and folders: put the file itself there")

    def _file(self, name: str) -> CorpusFile:
        with self._opened(name) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return CorpusFile(name=name, size=file.tell(), sha256=digest)

    def _opened(self, name: str) -> io.BufferedReader:
        path = self._path / name
        try:
            return opened_without_links(self._path, path)
        except OSError as error:
            raise DataError(f"{path}: {error.strerror or error}") from error


class _Bucket:
    def __init__(self, store: ObjectStore, prefix: str) -> None:
        self._store = store
        self._prefix = f"{prefix.rstrip('/')}/" if prefix else ""

    def files(self) -> list[CorpusFile]:
        found = []
        with data_errors("", _CHANGED):
            listed = self._store.list_keys(self._prefix)
        for key in listed:
            name = key.removeprefix(self._prefix)
            # An object whose key ends in a slash stands for a folder.
            if name.endswith("/") or any(
                part.startswith(HIDDEN) for part in name.split("/") if part not in {".", ".."}
            ):
                continue
            if reason := name_flaw(name):
                raise DataError(reason)
            content = self.read(name)
            found.append(CorpusFile(name=name, size=len(content), sha256=hashlib.sha256(content).hexdigest()))
        return found

    def read(self, name: str) -> bytes:
        key = self._prefix + name
        with data_errors("", _CHANGED):
            return self._store.get_bytes(key)
