"""Tar archives to and from containers; those that come out are not trusted."""

import io
import logging
import re
import tarfile
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from skillopt_airflow.core.types import FILE_NAME, MAX_FILES

REFUSED_NAMED = 3
"""Refused files that a log names."""

log = logging.getLogger(__name__)


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
    """Pack names and contents, one by one as they come."""
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
    """A file whose content comes in pieces."""

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
