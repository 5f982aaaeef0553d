"""Reading the output of a container, which is not to be trusted, and tar archives to and from containers."""

import io
import logging
import os
import re
import stat
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import IO, BinaryIO

from pydantic import ValidationError

from skillopt_airflow.core.values.documents import flaws
from skillopt_airflow.core.values.types import FILE_NAME, MAX_FILES, Trajectory
from skillopt_airflow.sandbox.task_workload import Outcome

MAX_LINE_BYTES = 4 * 1024 * 1024
MAX_PARTS = 10_000
"""Strings, lists, objects and commas in a line, about seven per message. Each takes far more memory than text does."""
_PART = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[{,]', re.DOTALL)
MAX_READ_BYTES = 64 * 1024 * 1024
"""What is read at a look, in pieces of MAX_LINE_BYTES."""
MAX_REFUSED = 1000
"""Lines of no use, after which nothing more of a container is read."""
MAX_REFUSED_LOGGED = 20
MAX_ENTRIES = 10_000
FOLLOW_NOTHING = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

REFUSED_NAMED = 3
"""Refused files that a log names."""

log = logging.getLogger(__name__)


class TrajectoryReader:
    """Follows a trajectories.jsonl; a line counts once it is complete, valid and about an open item."""

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
        """Items without an accepted line, in their original order."""
        return tuple(self._open)

    def read(self) -> list[Trajectory]:
        """Return the trajectories completed since the last call; everything else is logged and left out."""
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
        """Read on; the container may have put a link or a pipe there, of which neither is followed or blocks."""
        try:
            with _opened_plain(self._path) as file:
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
            log.warning("Refused %d lines of the container's output; the rest of it is not read", self._refused)


class FileReader:
    """Takes what items left in /out/files/<index>, as many bytes of all of them together as a container may write."""

    def __init__(self, outputs: Path, item_ids: Sequence[str], limit: int) -> None:
        self._outputs = outputs
        self._index = {item_id: str(index) for index, item_id in enumerate(item_ids)}
        self._left = limit

    def outcome(self, trajectory: Trajectory) -> Outcome:
        """Return the trajectory with the files that it names; what is no plain file of the item is left out."""
        if not trajectory.files:
            return Outcome(trajectory)
        names = tuple(dict.fromkeys(trajectory.files))
        if len(names) > MAX_FILES:
            log.warning("Item %s names %d files; %d are looked at", trajectory.item_id, len(names), MAX_FILES)
        files = self._read(self._index[trajectory.item_id], names[:MAX_FILES])
        return Outcome(trajectory.model_copy(update={"files": tuple(files)}), files)

    def _read(self, folder: str, names: Iterable[str]) -> Mapping[str, bytes]:
        files: dict[str, bytes] = {}
        try:
            with opened_folder(self._outputs, "files", folder) as descriptor:
                for name in names:
                    try:
                        files[name] = plain_file(descriptor, name, self._left)
                    except OSError as error:
                        _refused_file(folder, name, error)
                    else:
                        self._left -= len(files[name])
        except OSError as error:
            _refused_file(folder, "", error)
        return files


@contextmanager
def opened_folder(root: Path, *names: str) -> Iterator[int]:
    """Yield the descriptor of a folder below `root`, reached without following a link on the way.

    Raises:
        OSError: one of the names is not there or not a folder.
    """
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
    """Return the content of a plain file in an opened folder.

    Raises:
        OSError: the name is not a plain one, or what it names is no plain file or has more than `limit` bytes.
    """
    if re.fullmatch(FILE_NAME, name) is None:
        raise OSError("not a plain name")
    with _opened_plain(name, folder) as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise OSError(f"more than the {limit} bytes that are left to its container")
    return content


@contextmanager
def _opened_plain(name: str | Path, folder: int | None = None) -> Iterator[BinaryIO]:
    descriptor = os.open(name, FOLLOW_NOTHING, dir_fd=folder)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError("not a plain file")
        yield file


def _refused_file(folder: str, name: str, error: OSError) -> None:
    log.warning("Refused a file of the container's output: %.120r: %s", f"{folder}/{name}", error.strerror or error)


def written_bytes(folder: Path, limit: int) -> int:
    """Return the bytes on disk below a folder; above `limit` also for too many entries, or one that is unreadable."""
    total = entries = 0
    pending = [folder]
    while pending and total <= limit:
        try:
            with os.scandir(pending.pop()) as found:
                for entry in found:
                    entries += 1
                    if entries > MAX_ENTRIES:
                        return limit + 1
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(Path(entry.path))
                    total += _disk_bytes(entry)
        except FileNotFoundError:
            # Removed by the container between the listing and the look.
            continue
        except OSError:
            return limit + 1
    return total


def _disk_bytes(entry: os.DirEntry[str]) -> int:
    try:
        return entry.stat(follow_symlinks=False).st_blocks * 512
    except FileNotFoundError:
        return 0


def packed(folder: Path) -> bytes:
    """Pack all that is below a folder of the task's own, as root's."""
    body = io.BytesIO()
    pack_into(body, folder)
    return body.getvalue()


def pack_into(body: IO[bytes], folder: Path) -> None:
    with tarfile.open(fileobj=body, mode="w:") as tar:
        for path in sorted(folder.rglob("*")):
            tar.add(path, arcname=str(path.relative_to(folder)), recursive=False, filter=_as_root)


def packed_files(files: Iterable[tuple[str, bytes]]) -> bytes:
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w:") as tar:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return body.getvalue()


def plain_files(body: bytes, limit: int) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of the plain files of a tar, at most `limit` bytes of content; skip all else.

    Raises:
        OSError: the contents are larger, or it is no tar.
    """
    left = limit
    try:
        with tarfile.open(fileobj=io.BytesIO(body), mode="r|") as tar:
            for member in tar:
                # A sparse file says one size and holds another.
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
    """Write what a stream of the project's own holds.

    Raises:
        OSError: it leads out of the folder, or is no tar.
    """
    try:
        with tarfile.open(fileobj=_Stream(chunks), mode="r|") as tar:
            # Python before 3.11.4, such as Debian 12's, has no filter and does not take the argument.
            tar.extraction_filter = getattr(tarfile, "data_filter", None)
            tar.extractall(folder)  # noqa: S202 - of the project's own
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise OSError(f"not a tar of the project's own: {error}") from error


def unpack(body: bytes, folder: Path, limit: int) -> None:
    """Write the plain files <index>/<name> of a tar into those folders of `folder` that exist; refuse all else."""
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
        # One line: a container is fetched from again and again, and may leave thousands.
        named = ", ".join(f"{path:.120}" for path in refused[:REFUSED_NAMED])
        log.warning("Refused %d files of the container's output, such as %r", len(refused), named)


class _Stream(io.RawIOBase):
    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]
        while not self._rest:
            if (chunk := next(self._chunks, None)) is None:
                return 0
            self._rest = chunk
        part, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


def _as_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
