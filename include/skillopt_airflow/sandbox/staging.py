"""The folders that a container sees: /in with its work, /out for what it leaves, /gateway with its socket, /corpus.

A corpus is staged once per host from where it is stored, and mounted read-only into every container.
"""

import fcntl
import hashlib
import io
import json
import logging
import os
import shutil
import stat
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.core.values.types import Item
from skillopt_airflow.sandbox.task_workload import Corpus, Workload
from skillopt_airflow.tasks.corpus import CorpusFile, CorpusManifest
from skillopt_airflow.tasks.protocols import SEALED

Files = Iterable[Mapping[str, bytes]]
"""Contents by name, one mapping an item."""

PREFIX = "skillopt-"
HELD = "held"
"""File that a task locks for as long as it lives."""
ABANDONED_SECONDS = 3600
SANDBOX_UID = 10001
MAX_SOCKET_CHARS = 100

KEPT_DAYS = 14
"""Days after which a corpus that nobody used is removed when another one is staged."""
NAME_CHARS = 32

log = logging.getLogger(__name__)


@dataclass
class ContainerFolder:
    """The worker's side of one container's folders."""

    path: Path
    ended: bool = False
    """True once the container has ended, so that the next `fetch` is the last."""
    corpus: Path | None = None
    """The worker's folder of the run's corpus, for a program that runs beside the worker and mounts nothing."""

    @property
    def inputs(self) -> Path:
        """Folder of settings.json, skill.md, items.jsonl and the items' files; read-only in the container."""
        return self.path / "in"

    @property
    def outputs(self) -> Path:
        return self.path / "out"

    @property
    def gateway(self) -> Path:
        """Folder of the container's own socket; read-only there, which forbids making files, not connecting."""
        return self.path / "gateway"

    @property
    def socket(self) -> Path:
        return self.gateway / "model.sock"

    @property
    def files(self) -> Path:
        return self.outputs / "files"

    @property
    def sealed(self) -> Path:
        """Folder of what worlds are made of, which the program reads and removes before the first item begins."""
        return self.outputs / SEALED

    @property
    def trajectories(self) -> Path:
        return self.outputs / "trajectories.jsonl"

    def release(self, count: int) -> None:
        """Let the program begin its first items, so many; until this was called, it may begin all of them."""
        told = self.path / "released"
        _write(told, str(count).encode())
        # The program reads either number, and never a part of one.
        told.rename(self.inputs / "released")

    def fetch(self) -> None:
        """Copy what the container wrote to `outputs`, unless it writes there itself."""


class TaskFolder:
    """The folder of one task, whose containers see nothing of each other's folders."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def container(
        self, name: str, workload: Workload, items: Sequence[Item], files: Files
    ) -> Iterator[ContainerFolder]:
        made = ContainerFolder(self.path / name)
        try:
            for folder in (made.path, made.inputs, made.outputs, made.gateway):
                _make(folder)
            # What is sealed lies where the program can remove it.
            write_inputs(workload, items, made.inputs)
            write_files(files, made.sealed if workload.seals_files else made.inputs / "files")
            # Whichever user the container has may write here; on the host the task's folder lets nobody else in.
            for folder in (made.outputs, made.files, *(made.files / str(index) for index in range(len(items)))):
                folder.mkdir(exist_ok=True)
                folder.chmod(0o777)
            for folder in (made.sealed, *made.sealed.glob("*")) if workload.seals_files else ():
                folder.chmod(0o777)
            yield made
        finally:
            _remove(made.path)


@contextmanager
def staged() -> Iterator[TaskFolder]:
    sweep(Path(_short_folder()))
    with held_folder() as path:
        yield TaskFolder(path)


@contextmanager
def held_folder() -> Iterator[Path]:
    """Create a temporary folder, and remove it afterwards; that of a task that is killed is swept by a later one."""
    path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_short_folder()))
    try:
        with (path / HELD).open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield path
    finally:
        remove(path)


def sweep(place: Path) -> None:
    """Remove the folders of tasks that were killed: their locks are an hour old, and no task holds them any more."""
    for lock in place.glob(f"{PREFIX}*/{HELD}"):
        with suppress(OSError):
            if time.time() - lock.lstat().st_mtime > ABANDONED_SECONDS and not is_held(lock.parent):
                remove(lock.parent)


def is_held(folder: Path) -> bool:
    """Return whether a task of this host that lives has the folder."""
    try:
        # In /tmp, another user can make a pipe or a link of this name; opening a pipe would wait for its writer.
        held = os.open(folder / HELD, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    finally:
        os.close(held)
    return False


def write_inputs(workload: Workload, items: Sequence[Item], folder: Path) -> None:
    """Write what the program reads; of an item only its id and its public part."""
    lines = [json.dumps({"id": item.id, "public": item.public}) + "\n" for item in items]
    _write(folder / "settings.json", workload.settings.model_dump_json().encode())
    _write(folder / "skill.md", workload.skill.encode())
    _write(folder / "items.jsonl", "".join(lines).encode())


def write_files(files: Files, folder: Path) -> None:
    """Write the files of each item that has any into a folder of its own."""
    for index, contents in enumerate(files):
        if contents:
            _make(folder, exist_ok=True)
            _make(folder / str(index))
        for name, content in contents.items():
            _write(folder / str(index) / name, content)


def _make(folder: Path, *, exist_ok: bool = False) -> None:
    folder.mkdir(exist_ok=exist_ok)
    folder.chmod(0o755)


def _write(path: Path, content: bytes) -> None:
    path.write_bytes(content)
    path.chmod(0o644)


def remove(folder: Path) -> None:
    if folder.name.startswith(PREFIX):
        _remove(folder)


def _remove(folder: Path) -> None:
    # A container may leave a tree that is too deep for `shutil.rmtree`.
    subprocess.run(["rm", "-rf", "--", folder], stderr=subprocess.DEVNULL, check=False)  # noqa: S603, S607


def container_user() -> str:
    """Return the worker's own user, so that it can remove what the container leaves behind, but never root."""
    uid, gid = os.getuid(), os.getgid()
    return f"{SANDBOX_UID}:{SANDBOX_UID}" if uid == 0 else f"{uid}:{gid}"


def _short_folder() -> str:
    """Return a folder in which a socket's path has at most 107 bytes."""
    usual = tempfile.gettempdir()
    longest = len(os.fsencode(usual)) + len("/skillopt-12345678/12345/gateway/model.sock")
    return usual if longest <= MAX_SOCKET_CHARS else "/tmp"  # noqa: S108


def staged_corpus(corpus: Corpus, beside: Path) -> Path:
    """Return the host's folder of a corpus, staged by whichever task of the host is first; the others wait for it.

    Args:
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
        _make(new, exist_ok=True)
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
                _make(folder / parent, exist_ok=True)
            path.write_bytes(content)
            path.chmod(0o444)


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
