"""The corpora of a host: each staged once from where it is stored, and mounted read-only into every container."""

import fcntl
import hashlib
import io
import logging
import os
import shutil
import stat
import tarfile
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from skillopt_airflow.core.corpus import CorpusFile, CorpusManifest
from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.sandbox.task_workload import Corpus

KEPT_DAYS = 14
"""Days after which a corpus that nobody used is removed when another one is staged."""
NAME_CHARS = 32

log = logging.getLogger(__name__)


def staged_corpus(corpus: Corpus, beside: Path) -> Path:
    """Return the host's folder of a corpus, staged by whichever task of the host is first; the others wait for it.

    Args:
        corpus: what it holds.
        beside: the folder of temporary files, which the engine sees.

    Raises:
        SandboxError: the host's folder is not this user's own, or what is stored is not what the manifest says.
    """
    home = _home(beside)
    folder, manifest = home / corpus.manifest.sha256[:NAME_CHARS], corpus.manifest
    with of_one_task(beside, folder.name):
        if not is_complete(folder, manifest):
            _drop_unused(home)
            log.info("staging the corpus: %d files, %d bytes", len(manifest.files), manifest.size)
            _stage(corpus, home, folder)
        # The moment of its last use.
        os.utime(folder)
    return folder


def is_complete(folder: Path, manifest: CorpusManifest) -> bool:
    """Return whether all files are there with their sizes; a host may clean up what lies among temporary files."""
    try:
        return all(_plain_size(folder / file.name) == file.size for file in manifest.files)
    except OSError:
        return False


def _stage(corpus: Corpus, home: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".new-", dir=home, ignore_cleanup_errors=True) as scratch:
        new = Path(scratch) / "corpus"
        _make(new)
        for files, archive in zip(corpus.manifest.packed(), corpus.archives(), strict=True):
            _unpack(archive, files, new)
        if folder.exists():
            folder.rename(Path(scratch) / "former")
        # Who mounts it sees all of it or nothing.
        new.rename(folder)


def _unpack(archive: bytes, files: Sequence[CorpusFile], folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
        for file in files:
            member = tar.getmember(file.name)
            stored = tar.extractfile(member) if member.isreg() else None
            content = b"" if stored is None else stored.read()
            if hashlib.sha256(content).hexdigest() != file.sha256:
                raise SandboxError(
                    f"the stored corpus is damaged: {file.name} is not what its manifest says; remove the corpus's "
                    "folder below corpora/ in the bucket and start the run again"
                )
            path = folder / file.name
            for parent in reversed(path.relative_to(folder).parents[:-1]):
                _make(folder / parent)
            path.write_bytes(content)
            path.chmod(0o444)


def _make(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)


def _plain_size(path: Path) -> int:
    found = path.lstat()
    return found.st_size if stat.S_ISREG(found.st_mode) else -1


def _home(beside: Path) -> Path:
    """Return the folder of this user's corpora, into which nobody else of the host can look."""
    home = beside / f"skillopt-corpora-{os.getuid()}"
    with suppress(FileExistsError):
        home.mkdir(mode=0o700)
    found = home.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise SandboxError(f"{home} is not this user's own folder: remove it, or set TMPDIR to another one")
    home.chmod(0o700)
    return home


@contextmanager
def of_one_task(beside: Path, name: str) -> Iterator[None]:
    """Let one task of the host at a time, and one thread, into the block of a name; `beside` is as in `staged_corpus`.

    Raises:
        SandboxError: the host's folder is not this user's own.
    """
    with (_home(beside) / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _drop_unused(home: Path) -> None:
    oldest = time.time() - KEPT_DAYS * 24 * 3600
    for folder in home.iterdir():
        with suppress(OSError):
            if folder.is_dir() and folder.stat().st_mtime < oldest:
                log.info("removing the corpus %s, which was not used for %d days", folder.name, KEPT_DAYS)
                shutil.rmtree(folder)
