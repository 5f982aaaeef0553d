"""What a task and its pod leave for each other in the store, and how the task takes what the pod left."""

import io
import logging
import re
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal, Protocol

from pydantic import ValidationError

from skillopt_airflow.core.types import FILE_NAME, MAX_FILES, ModelCall
from skillopt_airflow.sandbox.pod_transfer import TransferConfig
from skillopt_airflow.sandbox.staging import ContainerFolder

FETCH_SECONDS = 2.0
INPUTS, TRAJECTORIES, FILES, CALLS = "inputs.tar", "trajectories.jsonl", "files.tar", "calls.jsonl"

log = logging.getLogger(__name__)


class Exchange(Protocol):
    """A folder of the store that a pod reaches by signed addresses."""

    def put(self, name: str, body: bytes) -> None:
        """Leave something for the pod."""
        ...

    def address(self, name: str, method: Literal["get", "put"], seconds: int) -> str:
        """Where the pod fetches or leaves an object, for so many seconds."""
        ...

    def take(self, name: str, most: int) -> bytes | None:
        """What the pod left since the last time, if it did, and it has at most so many bytes."""
        ...

    def clear(self) -> None:
        """Remove everything."""
        ...


def transfer_config(exchange: Exchange, items: int, most: int, seconds: int) -> TransferConfig:
    """What a pod's courier is told; its addresses are good for so many seconds."""
    return TransferConfig(
        inputs=exchange.address(INPUTS, "get", seconds),
        trajectories=exchange.address(TRAJECTORIES, "put", seconds),
        files=exchange.address(FILES, "put", seconds),
        calls=exchange.address(CALLS, "put", seconds),
        items=items,
        most_bytes=most,
    )


def packed(folder: Path) -> bytes:
    """A folder of the task's own as a tar."""
    body = io.BytesIO()
    with tarfile.open(fileobj=body, mode="w:") as tar:
        tar.add(folder, arcname=".")
    return body.getvalue()


class PodFolder(ContainerFolder):
    """The task's copy of a pod's folders; what a pod left is as little to be trusted as what a container wrote."""

    def __init__(
        self, folder: Path, exchange: Exchange, items: int, most: int, on_call: Callable[[ModelCall], None]
    ) -> None:
        super().__init__(folder)
        self._exchange = exchange
        self._items = items
        self._most = most
        self._on_call = on_call
        self._calls = 0
        self._next = 0.0

    def fetch(self) -> None:
        """Take what is new; rows first, because the pod leaves the files that they name before them."""
        if not self.ended and time.monotonic() < self._next:
            return
        self._next = time.monotonic() + FETCH_SECONDS
        rows = self._exchange.take(TRAJECTORIES, self._most)
        files = self._exchange.take(FILES, 2 * self._most)
        calls = self._exchange.take(CALLS, self._most)
        if files is not None:
            unpack(files, self.outputs, self._items, self._most)
        if rows is not None:
            self.trajectories.write_bytes(rows)
        if calls is not None:
            self._tell(calls)

    def _tell(self, calls: bytes) -> None:
        """Complete lines only, each once; the gateway's own, so a bad one is a bug and not an attack."""
        *lines, _ = calls.split(b"\n")
        for line in lines[self._calls :]:
            try:
                self._on_call(ModelCall.model_validate_json(line))
            except ValidationError:
                log.warning("The gateway wrote what is no model call: %.200r", line)
        self._calls = max(self._calls, len(lines))


def unpack(body: bytes, outputs: Path, items: int, most: int) -> None:
    """Write the plain files <index>/<name> of a tar below files/, up to `most` bytes; everything else is left out."""
    counts = [0] * items
    try:
        with tarfile.open(fileobj=io.BytesIO(body), mode="r:") as tar:
            for member in tar:
                index, _, name = member.name.partition("/")
                known = index.isascii() and index.isdecimal() and int(index) < items and re.fullmatch(FILE_NAME, name)
                if not (known and member.isreg() and member.size <= most and counts[int(index)] < MAX_FILES):
                    log.warning("Refused an entry of the pod's files: %.120r", member.name)
                    continue
                content = tar.extractfile(member)
                if content is not None:
                    (outputs / "files" / str(int(index)) / name).write_bytes(content.read())
                counts[int(index)] += 1
                most -= member.size
    except (tarfile.TarError, EOFError, ValueError) as error:
        log.warning("Refused the pod's files: %s", error)
