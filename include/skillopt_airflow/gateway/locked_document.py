"""A small document in a file that the processes of a host replace under the file's lock."""

import asyncio
import fcntl
import os
import struct
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

LOCK_SECONDS = 0.002
_PLACE = struct.Struct("<QQ")
"""Where the document begins and how long it is: the head of the file."""


class LockedDocument:
    """A document that is always whole, whoever is killed at any moment.

    It is written beside the one that holds, within the same file; then the file's head, a single write of a few bytes,
    names its place. Replacing the file instead would make some file systems write to the disk each time.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)

    @asynccontextmanager
    async def locked(self) -> AsyncIterator[None]:
        """Hold the lock, without blocking the event loop while waiting for it; one task of a process at a time."""
        while not _try_lock(self._descriptor):
            await asyncio.sleep(LOCK_SECONDS)
        try:
            yield
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def read(self) -> bytes:
        """Return the document, which is empty at first; hold the lock."""
        begin, length = self._place()
        return os.pread(self._descriptor, length, begin)

    def write(self, document: bytes) -> None:
        """Replace the document; hold the lock."""
        begin, length = self._place()
        before = _PLACE.size + len(document) <= begin
        place = _PLACE.size if before else max(_PLACE.size, begin + length)
        os.pwrite(self._descriptor, document, place)
        os.pwrite(self._descriptor, _PLACE.pack(place, len(document)), 0)

    def is_removed(self) -> bool:
        """Return whether the file has no name any more."""
        return os.fstat(self._descriptor).st_nlink == 0

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)
        # Another file may get the same number.
        self._descriptor = -1

    def _place(self) -> tuple[int, int]:
        head = os.pread(self._descriptor, _PLACE.size, 0)
        begin, length = _PLACE.unpack(head) if len(head) == _PLACE.size else (0, 0)
        size = os.fstat(self._descriptor).st_size
        # A damaged head names a place outside of the file.
        return (begin, length) if begin + length <= size else (0, 0)


@contextmanager
def locked_at_once(path: Path) -> Iterator[bool]:
    """Yield whether a file's lock was free; it is held during the block."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        yield _try_lock(descriptor)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
