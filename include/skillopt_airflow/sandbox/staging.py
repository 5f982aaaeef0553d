"""The folders that a container sees: /in for inputs, /out for outputs, /gateway for its socket, and /corpus.

A corpus is staged once per host, and mounted read-only into every container.
"""

import errno
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
from pathlib import Path

from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.core.values.types import Item
from skillopt_airflow.sandbox.task_workload import Corpus, Workload
from skillopt_airflow.tasks.corpus import CorpusFile, CorpusManifest
from skillopt_airflow.tasks.protocols import SEALED

Files = Iterable[Mapping[str, bytes]]
"""Contents by name, one mapping per item."""

PREFIX = "skillopt-"
LOCK_FILE = "held"
"""File that a task keeps locked while it's alive."""
ABANDONED_SECONDS = 3600
SANDBOX_UID = 10001
MAX_SOCKET_CHARS = 100

KEPT_DAYS = 14
"""Days after which an unused corpus is removed, at the next staging of another one."""
NAME_CHARS = 32

log = logging.getLogger(__name__)


class ContainerFolder:
    """The worker's side of one container's folders."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.ended = False
        """True once the container has ended, so the next `fetch` is the last."""
        self.corpus: Path | None = None
        """The worker's folder of the run's corpus, for a program that mounts nothing."""
        self.inputs = path / "in"
        self.outputs = path / "out"
        self.trajectories = self.outputs / "trajectories.jsonl"
        self.files = self.outputs / "files"
        self.sealed = self.outputs / SEALED
        """Folder of the worlds' files, which the program reads and removes before the first item starts."""
        self.gateway = path / "gateway"
        """Folder of the container's socket. It's read-only there, but a socket in it accepts connections."""
        self.socket = self.gateway / "model.sock"

    def release(self, count: int) -> None:
        """Let the program start its first `count` items; without a call, it may start all of them."""
        written = self.path / "released"
        _write(written, str(count).encode())
        # Renaming makes the new number appear atomically.
        written.rename(self.inputs / "released")

    def fetch(self) -> None:
        """Copy the container's output to `outputs`, unless the container writes there itself."""


@contextmanager
def room_in(folder: Path) -> Iterator[None]:
    """Raise SandboxError with the remedy if the folder's disk is full."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        free = shutil.disk_usage(folder).free // 2**20
        raise SandboxError(
            f"{folder} has no room left for a sandbox's files ({free} MB free). Free some, set TMPDIR to a folder on a "
            "larger disk for Airflow's workers, or lower sandbox.output_mb or sandbox.max_containers"
        ) from error


@contextmanager
def container_folder(path: Path, workload: Workload, items: Sequence[Item], files: Files) -> Iterator[ContainerFolder]:
    """Create the folders of a container with its inputs, and remove them afterwards."""
    made = ContainerFolder(path)
    try:
        with room_in(path.parent):
            for folder in (made.path, made.inputs, made.outputs, made.gateway):
                _make(folder)
            _write(made.inputs / "settings.json", workload.settings.model_dump_json().encode())
            _write(made.inputs / "skill.md", workload.skill.encode())
            # Only an item's public part enters the sandbox.
            lines = [json.dumps({"id": item.id, "public": item.public}) + "\n" for item in items]
            _write(made.inputs / "items.jsonl", "".join(lines).encode())
            write_files(files, made.sealed if workload.seals_files else made.inputs / "files")
            # Writable by any user in the container; on the host, only the worker's user can enter the task's folder.
            for folder in (made.outputs, made.files, *(made.files / str(index) for index in range(len(items)))):
                folder.mkdir(exist_ok=True)
                folder.chmod(0o777)
            for folder in (made.sealed, *made.sealed.glob("*")) if workload.seals_files else ():
                folder.chmod(0o777)
        yield made
    finally:
        _remove(made.path)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Create a temporary folder and remove it afterwards; if the task is killed, a later task removes it."""
    remove_abandoned(Path(_short_folder()))
    with room_in(Path(_short_folder())):
        path = Path(tempfile.mkdtemp(prefix=PREFIX, dir=_short_folder()))
    try:
        with (path / LOCK_FILE).open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            yield path
    finally:
        remove(path)


def remove_abandoned(place: Path) -> None:
    """Remove the folders of killed tasks: those with a free lock that is more than an hour old."""
    for lock in place.glob(f"{PREFIX}*/{LOCK_FILE}"):
        with suppress(OSError):
            if time.time() - lock.lstat().st_mtime > ABANDONED_SECONDS and not is_locked(lock.parent):
                remove(lock.parent)


def is_locked(folder: Path) -> bool:
    """Return whether a live task on this host uses the folder."""
    try:
        # In /tmp, another user can create a pipe or a link with this name; opening a pipe would wait for a writer.
        held = os.open(folder / LOCK_FILE, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except OSError:
        return False
    try:
        fcntl.flock(held, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:
        return isinstance(error, BlockingIOError)
    finally:
        os.close(held)
    return False


def write_files(files: Files, folder: Path) -> None:
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
    # A container's output can be too deeply nested for `shutil.rmtree`.
    subprocess.run(["rm", "-rf", "--", folder], stderr=subprocess.DEVNULL, check=False)  # noqa: S603, S607


def container_user() -> str:
    """Return the worker's user, so that the worker can remove the container's output, but never root."""
    uid, gid = os.getuid(), os.getgid()
    return f"{SANDBOX_UID}:{SANDBOX_UID}" if uid == 0 else f"{uid}:{gid}"


def _short_folder() -> str:
    # The path of a Unix socket can have at most 107 bytes.
    usual = tempfile.gettempdir()
    longest = len(os.fsencode(usual)) + len("/skillopt-12345678/12345/gateway/model.sock")
    return usual if longest <= MAX_SOCKET_CHARS else "/tmp"  # noqa: S108


def stage_corpus(corpus: Corpus, parent: Path) -> Path:
    """Return the host's folder of a corpus, below `parent`. The host's first task stages it, and the others wait.

    Raises SandboxError if another user owns the host's folder, or the stored corpus doesn't match its manifest.
    """
    home = _home(parent)
    folder, manifest = home / corpus.manifest.sha256[:NAME_CHARS], corpus.manifest
    with host_lock(parent, folder.name):
        if not is_complete(folder, manifest):
            _drop_unused(home)
            log.info("staging the corpus: %d files, %d bytes", len(manifest.files), manifest.size)
            with room_in(home):
                _stage(corpus, home, folder)
        # Records the last use, for `_drop_unused`.
        os.utime(folder)
    return folder


def is_complete(folder: Path, manifest: CorpusManifest) -> bool:
    # The host may delete old temporary files one by one.
    try:
        states = [(folder / file.name).lstat() for file in manifest.files]
    except OSError:
        return False
    sizes = [state.st_size if stat.S_ISREG(state.st_mode) else -1 for state in states]
    return sizes == [file.size for file in manifest.files]


def _stage(corpus: Corpus, home: Path, folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".new-", dir=home, ignore_cleanup_errors=True) as scratch:
        new = Path(scratch) / "corpus"
        _make(new, exist_ok=True)
        for files, archive in zip(corpus.manifest.packed(), corpus.archives(), strict=True):
            _unpack(archive, files, new)
        if folder.exists():
            folder.rename(Path(scratch) / "previous")
        # Renaming makes the corpus appear atomically.
        new.rename(folder)


def _unpack(archive: bytes, files: Sequence[CorpusFile], folder: Path) -> None:
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:") as tar:
        for file in files:
            member = tar.getmember(file.name)
            stored = tar.extractfile(member) if member.isreg() else None
            content = b"" if stored is None else stored.read()
            if hashlib.sha256(content).hexdigest() != file.sha256:
                raise SandboxError(
                    f"the stored corpus is damaged: {file.name} does not match its manifest. Remove the corpus's "
                    "folder below corpora/ in the bucket and start the run again."
                )
            path = folder / file.name
            for parent in reversed(path.relative_to(folder).parents[:-1]):
                _make(folder / parent, exist_ok=True)
            path.write_bytes(content)
            path.chmod(0o444)


def _home(parent: Path) -> Path:
    home = parent / f"skillopt-corpora-{os.getuid()}"
    with suppress(FileExistsError):
        home.mkdir(mode=0o700)
    state = home.lstat()
    if not stat.S_ISDIR(state.st_mode) or state.st_uid != os.getuid():
        raise SandboxError(f"{home}: another user owns this folder. Remove it, or set TMPDIR to another one.")
    home.chmod(0o700)
    return home


@contextmanager
def host_lock(parent: Path, name: str) -> Iterator[None]:
    """Lock a name for one thread on the whole host, by a file below `parent`."""
    with (_home(parent) / f"{name}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _drop_unused(home: Path) -> None:
    oldest = time.time() - KEPT_DAYS * 24 * 3600
    for folder in home.iterdir():
        with suppress(OSError):
            if folder.is_dir() and folder.stat().st_mtime < oldest:
                log.info("removing the corpus %s, unused for %d days", folder.name, KEPT_DAYS)
                shutil.rmtree(folder)
