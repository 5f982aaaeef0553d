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
from typing import TYPE_CHECKING, NoReturn

from skillopt_airflow.core.errors import Conflict, DataError
from skillopt_airflow.store.data.places import ANY, LocalPlace, locate
from skillopt_airflow.store.keys import CorpusKeys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.tasks.corpus import MAX_FILE_BYTES, CorpusFile, CorpusManifest, corpus_manifest, name_flaw

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
        self._place = locate(url, root, client, "data.corpus").without_links()

    @cached_property
    def manifest(self) -> CorpusManifest:
        """Read all files and return their names, sizes and hashes.

        Raises:
            DataError: the folder doesn't exist, or contains an unusable file, such as a link.
        """
        try:
            return corpus_manifest([self._file(name) for name in self._names()])
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

    def _names(self) -> Iterator[str]:
        place = self._place
        names = _local_names(place.path) if isinstance(place, LocalPlace) else place.paths(ANY, _CHANGED)
        # An object whose key ends with a slash represents a folder.
        return (name for name in names if not name.endswith("/") and not _is_hidden(name))

    def _file(self, name: str) -> CorpusFile:
        if reason := name_flaw(name):
            raise DataError(reason)
        content = self._read(name)
        return CorpusFile(name=name, size=len(content), sha256=hashlib.sha256(content).hexdigest())

    def _read(self, name: str) -> bytes:
        return self._place.below(name).read(_CHANGED, MAX_FILE_BYTES + 1)

    def _unchanged(self, file: CorpusFile) -> bytes:
        content = self._read(file.name)
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


def _local_names(top: Path) -> Iterator[str]:
    """Yield the paths of all files and links below a folder, except in hidden folders."""
    for folder, folders, files in os.walk(top, onerror=_refuse):
        folders[:] = [name for name in folders if not name.startswith(HIDDEN)]
        # Reading refuses links.
        links = [name for name in folders if Path(folder, name).is_symlink()]
        yield from (Path(folder, name).relative_to(top).as_posix() for name in (*files, *links))


def _refuse(error: OSError) -> NoReturn:
    raise DataError(f"{error.filename}: {error.strerror}. Set data.corpus to a folder of documents.") from error


def _is_hidden(name: str) -> bool:
    return any(part.startswith(HIDDEN) and part not in {".", ".."} for part in name.split("/"))
