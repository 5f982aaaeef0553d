"""Files on their way to and from an engine that is far away: tar streams, of which those that come are not trusted."""

import io
import tarfile
from collections.abc import Iterable, Iterator
from pathlib import Path

OVERHEAD_BYTES = 1024 * 1024
"""What a tar may have beside the contents, and as much again as they have."""


def packed(folder: Path) -> bytes:
    """All that is below a folder of the task's own, as root's."""
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w:") as tar:
        for path in sorted(folder.rglob("*")):
            tar.add(path, arcname=str(path.relative_to(folder)), recursive=False, filter=_as_root)
    return body.getvalue()


def plain_files(chunks: Iterable[bytes], limit: int) -> Iterator[tuple[str, bytes]]:
    """Name and content of the plain files of a stream, at most `limit` bytes of content; all else is passed over.

    Raises:
        OSError: the stream or the contents are larger, or it is no tar.
    """
    left = limit
    try:
        with tarfile.open(fileobj=_Bounded(chunks, 2 * limit + OVERHEAD_BYTES), mode="r|") as tar:
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


class _Bounded(io.RawIOBase):
    """A stream that ends with an error above its limit, instead of filling the memory."""

    def __init__(self, chunks: Iterable[bytes], limit: int) -> None:
        self._chunks = iter(chunks)
        self._left = limit
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview") -> int:  # type: ignore[override]
        while not self._rest:
            self._rest = next(self._chunks, b"")
            if not self._rest:
                return 0
            self._left -= len(self._rest)
            if self._left < 0:
                raise OSError("the archive is larger than all that its container may write")
        part, self._rest = self._rest[: len(buffer)], self._rest[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


def _as_root(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
