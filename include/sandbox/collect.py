"""Reading what a container wrote, which is not to be trusted."""

import logging
import math
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from pydantic import ValidationError

from include.core.types import Trajectory

MAX_LINE_BYTES = 4 * 1024 * 1024
MAX_READ_BYTES = 64 * 1024 * 1024
MAX_ENTRIES = 10_000

log = logging.getLogger(__name__)


class TrajectoryReader:
    """Follows a trajectories.jsonl; a line counts once it is complete, valid and about an open item."""

    def __init__(self, path: Path, item_ids: Iterable[str]) -> None:
        self._path = path
        self._open = dict.fromkeys(item_ids)
        self._offset = 0
        self._rest = b""
        self._too_long = False
        self.lines = 0
        """Complete lines so far, accepted or not."""

    @property
    def missing(self) -> tuple[str, ...]:
        """Items without an accepted line, in their original order."""
        return tuple(self._open)

    def read(self) -> list[Trajectory]:
        """The trajectories that were completed since the last call; everything else is logged and left out."""
        *lines, rest = (self._rest + self._read_bytes()).split(b"\n")
        self.lines += len(lines)
        accepted = []
        for line in lines:
            if self._too_long or len(line) > MAX_LINE_BYTES:
                self._refuse(f"longer than {MAX_LINE_BYTES} bytes")
                self._too_long = False
            elif (trajectory := self._accept(line)) is not None:
                accepted.append(trajectory)
        self._too_long = self._too_long or len(rest) > MAX_LINE_BYTES
        self._rest = b"" if self._too_long else rest
        return accepted

    def _read_bytes(self) -> bytes:
        """The container may have put a link or a pipe there: neither is followed, neither blocks."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        except FileNotFoundError:
            return b""
        except OSError as error:
            self._refuse(f"not a plain file ({error.strerror})")
            return b""
        with os.fdopen(descriptor, "rb") as file:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                self._refuse("not a plain file")
                return b""
            file.seek(self._offset)
            content = file.read(MAX_READ_BYTES)
        self._offset += len(content)
        return content

    def _accept(self, line: bytes) -> Trajectory | None:
        try:
            trajectory = Trajectory.model_validate_json(line)
        except ValidationError as error:
            first = error.errors(include_input=False, include_url=False)[0]
            self._refuse(f"{'.'.join(str(part) for part in first['loc']) or 'line'}: {first['msg']}")
            return None
        if trajectory.item_id not in self._open:
            self._refuse(f"item {trajectory.item_id[:80]!r} is not open in this container")
            return None
        if not (math.isfinite(trajectory.seconds) and math.isfinite(trajectory.started)):
            self._refuse("a time is not a finite number")
            return None
        del self._open[trajectory.item_id]
        return trajectory

    def _refuse(self, why: str) -> None:
        log.warning("Refused a line of the container's output: %s", why)


def written_bytes(folder: Path, limit: int) -> int:
    """Bytes on disk below a folder; stops counting above `limit`, which too many files exceed as well."""
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
                    total += entry.stat(follow_symlinks=False).st_blocks * 512
        except OSError:
            # Removed by the container between the listing and the look.
            continue
    return total
