"""Readers of a container's untrusted output, and tar archives to and from containers."""

import io
import logging
import os
import re
import stat
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import IO, BinaryIO, cast

from pydantic import ValidationError

from skillopt_airflow.core.values.documents import flaws
from skillopt_airflow.core.values.types import FILE_NAME, MAX_FILES, Trajectory
from skillopt_airflow.sandbox.task_workload import Outcome

MAX_LINE_BYTES = 4 * 1024 * 1024
MAX_PARTS = 10_000
"""Limit of strings, lists, objects and commas per line, about seven per message. Each takes much memory."""
_PART = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{,]', re.DOTALL)
MAX_READ_BYTES = 64 * 1024 * 1024
"""Limit per `read`, in pieces of MAX_LINE_BYTES."""
MAX_REFUSED = 1000
"""Stop reading a container's output after this many invalid lines."""
MAX_REFUSED_LOGGED = 20
MAX_ENTRIES = 10_000
"""Maximum number of files and folders of a container's output."""
FOLLOW_NOTHING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

REFUSED_NAMED = 3

log = logging.getLogger(__name__)


class TrajectoryReader:
    """Reads a growing trajectories.jsonl; accepts complete, valid lines of open items."""

    def __init__(self, path: Path, item_ids: Iterable[str]) -> None:
        self._path = path
        self._open = dict.fromkeys(item_ids)
        self._offset = 0
        self._rest = b""
        self._too_long = False
        self._refused = 0

    @property
    def is_flooded(self) -> bool:
        return self._refused > MAX_REFUSED

    @property
    def missing(self) -> tuple[str, ...]:
        return tuple(self._open)

    def read(self) -> list[Trajectory]:
        """Return the trajectories completed since the last call; log and skip everything else."""
        accepted: list[Trajectory] = []
        before = self._offset
        while not self.is_flooded and self._offset - before < MAX_READ_BYTES and (more := self._read_bytes()):
            accepted += self._take(more)
        return accepted

    def _take(self, more: bytes) -> list[Trajectory]:
        *lines, rest = (self._rest + more).split(b"\n")
        accepted = []
        for line in lines:
            if self.is_flooded:
                break
            if self._too_long or len(line) > MAX_LINE_BYTES:
                self._refuse(f"longer than {MAX_LINE_BYTES} bytes")
                self._too_long = False
            elif (trajectory := self._accept(line)) is not None:
                accepted.append(trajectory)
        self._too_long = self._too_long or len(rest) > MAX_LINE_BYTES
        self._rest = b"" if self._too_long else rest
        return accepted

    def _read_bytes(self) -> bytes:
        try:
            with _open_plain(self._path) as file:
                file.seek(self._offset)
                content = file.read(MAX_LINE_BYTES)
        except FileNotFoundError:
            return b""
        except OSError as error:
            self._refuse(f"not a plain file ({error.strerror})" if error.strerror else str(error))
            return b""
        self._offset += len(content)
        return content

    def _accept(self, line: bytes) -> Trajectory | None:
        if next(islice(_PART.finditer(line), MAX_PARTS, None), None) is not None:
            self._refuse(f"more than {MAX_PARTS} values")
            return None
        try:
            trajectory = Trajectory.model_validate_json(line)
        except ValidationError as error:
            self._refuse(f"{flaws(error, 1)!r:.300}")
            return None
        if trajectory.item_id not in self._open:
            self._refuse(f"item {trajectory.item_id[:80]!r} is not open in this container")
            return None
        del self._open[trajectory.item_id]
        return trajectory

    def _refuse(self, why: str) -> None:
        self._refused += 1
        if self._refused <= MAX_REFUSED_LOGGED:
            log.warning("Refused a line of the container's output: %s", why)
        elif self.is_flooded:
            log.warning("Refused %d lines of the container's output; stopped reading it", self._refused)


class FileReader:
    """Reads the items' files in /out/files/<index>, up to `limit` bytes in total."""

    def __init__(self, outputs: Path, item_ids: Sequence[str], limit: int) -> None:
        self._outputs = outputs
        self._index = {item_id: str(index) for index, item_id in enumerate(item_ids)}
        self._left = limit

    def outcome(self, trajectory: Trajectory) -> Outcome:
        """Return the trajectory with its files; skip names that aren't plain files of the item."""
        if not trajectory.files:
            return Outcome(trajectory)
        names = tuple(dict.fromkeys(trajectory.files))
        if len(names) > MAX_FILES:
            log.warning("Item %s names %d files; reading the first %d", trajectory.item_id, len(names), MAX_FILES)
        files = self._read(self._index[trajectory.item_id], names[:MAX_FILES])
        return Outcome(trajectory.model_copy(update={"files": tuple(files)}), files)

    def _read(self, folder: str, names: Iterable[str]) -> Mapping[str, bytes]:
        files: dict[str, bytes] = {}
        try:
            with open_folder(self._outputs, "files", folder) as descriptor:
                for name in names:
                    try:
                        files[name] = plain_file(descriptor, name, self._left)
                    except OSError as error:
                        _log_refused(folder, name, error)
                    else:
                        self._left -= len(files[name])
        except OSError as error:
            _log_refused(folder, "", error)
        return files


@contextmanager
def open_folder(root: Path, *names: str) -> Iterator[int]:
    """Yield the descriptor of a folder below `root`, without following a link on the way."""
    descriptor = os.open(root, os.O_DIRECTORY | FOLLOW_NOTHING)
    try:
        for name in names:
            inner = os.open(name, os.O_DIRECTORY | FOLLOW_NOTHING, dir_fd=descriptor)
            os.close(descriptor)
            descriptor = inner
        yield descriptor
    finally:
        os.close(descriptor)


def plain_file(folder: int, name: str, limit: int) -> bytes:
    """Return a file of an opened folder. Raises OSError if name or file isn't plain, or it exceeds `limit` bytes."""
    if re.fullmatch(FILE_NAME, name) is None:
        raise OSError("not a plain name")
    with _open_plain(name, folder) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(f"more than the container's remaining {limit} bytes")
    return content


@contextmanager
def _open_plain(name: str | Path, folder: int | None = None) -> Iterator[BinaryIO]:
    descriptor = os.open(name, FOLLOW_NOTHING, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("not a plain file")
        yield file


def _log_refused(folder: str, name: str, error: OSError) -> None:
    log.warning("Refused a file of the container's output: %.120r: %s", f"{folder}/{name}", error.strerror or error)


def written_bytes(folder: Path, limit: int) -> int:
    """Return the bytes on disk below a folder; more than `limit` for too many or unreadable entries."""
    total = entries = 0
    pending = [folder]
    while pending and total <= limit:
        try:
            with os.scandir(pending.pop()) as listed:
                for entry in listed:
                    entries += 1
                    if entries > MAX_ENTRIES:
                        return limit + 1
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(Path(entry.path))
                    with suppress(FileNotFoundError):
                        total += entry.stat(follow_symlinks=False).st_blocks * 512
        except FileNotFoundError:
            # The container removed it after the listing.
            continue
        except OSError:
            return limit + 1
    return total


def pack_folder(folder: Path) -> bytes:
    """Pack a folder, with root as the owner of its files."""
    body = io.BytesIO()
    pack_into(body, folder)
    return body.getvalue()


def pack_into(body: IO[bytes], folder: Path) -> None:
    with tarfile.open(fileobj=body, mode="w:") as tar:
        for path in sorted(folder.rglob("*")):
            tar.add(path, arcname=str(path.relative_to(folder)), recursive=False, filter=_as_root)


def pack_files(files: Iterable[tuple[str, bytes]]) -> bytes:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w:") as tar:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return body.getvalue()


def plain_files(body: bytes, limit: int) -> Iterator[tuple[str, bytes]]:
    """Yield names and contents of a tar's plain files. Raises OSError for over `limit` bytes, or if it isn't a tar."""
    left = limit
    try:
        with tarfile.open(fileobj=io.BytesIO(body), mode="r|") as tar:
            for member in tar:
                # The declared size of a sparse file isn't its real one.
                if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
                    continue
                left -= member.size
                if left < 0:
                    raise OSError(f"more than {limit} bytes")
                content = tar.extractfile(member)
                if content is not None:
                    yield member.name, content.read()
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise OSError(f"not a tar: {error}") from error


def extract(chunks: Iterable[bytes], folder: Path) -> None:
    """Extract a tar stream of this project. Raises OSError if it isn't one, or a path is outside the folder."""
    try:
        with tarfile.open(fileobj=cast("IO[bytes]", _Chunks(chunks)), mode="r|") as tar:
            # Python before 3.11.4, such as Debian 12's, has no filters and rejects the argument.
            tar.extraction_filter = getattr(tarfile, "data_filter", None)
            tar.extractall(folder)  # noqa: S202 - trusted
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise OSError(f"not a tar of this project: {error}") from error


def unpack(body: bytes, folder: Path, limit: int) -> None:
    """Extract a tar's plain files <index>/<name> into existing folders; refuse everything else."""
    counts: Counter[str] = Counter()
    refused: list[str] = []
    try:
        for path, content in plain_files(body, limit):
            index, _, name = path.partition("/")
            known = re.fullmatch("[0-9]+", index) and re.fullmatch(FILE_NAME, name) and (folder / index).is_dir()
            if known and counts[index] < MAX_FILES:
                (folder / index / name).write_bytes(content)
                counts[index] += 1
            else:
                refused.append(path)
    except OSError as error:
        log.warning("Refused the container's output: %s", error)
    if refused:
        # One line, because a container can leave thousands of files, and each fetch repeats the refusals.
        named = ", ".join(f"{path:.120}" for path in refused[:REFUSED_NAMED])
        log.warning("Refused %d files of the container's output, such as %r", len(refused), named)


class _Chunks:
    """A stream for tarfile; `read` may return any number of bytes, and none at the end."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = filter(None, chunks)

    def read(self, size: int) -> bytes:
        return next(self._chunks, b"")


def _as_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
