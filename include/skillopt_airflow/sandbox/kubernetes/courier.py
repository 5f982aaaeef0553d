"""The program that moves a remote sandbox's inputs in and its outputs out.

`python -m skillopt_airflow.sandbox.kubernetes.courier fetch CONFIG /in /out [/corpus]` runs before the rollout program.
`deliver CONFIG /out CALLS` runs next to it until SIGTERM. CONFIG is a file, or `-` for a line of standard input. Its
only credentials are signed URLs of single objects of the store.
"""

import hashlib
import logging
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from skillopt_airflow.core.values.types import Value, files_to_score
from skillopt_airflow.sandbox.untrusted_output import extract, open_folder, pack_files, plain_file
from skillopt_airflow.tasks.protocols import SEALED

if TYPE_CHECKING:
    import httpx

CONFIG = "courier.json"
CALLS_PATH = "/calls/calls.jsonl"
TRAJECTORIES = "trajectories.jsonl"
DELIVER_SECONDS = 3.0
LAST_TRIES = 5
HTTP_SECONDS = 60.0

log = logging.getLogger(__name__)


class TransferConfig(Value):
    """Signed URLs, valid for the sandbox's lifetime, and limits."""

    inputs: str
    """GET: a tar of /in."""
    trajectories: str
    """PUT: the current trajectories.jsonl."""
    files: str
    """PUT: a tar of the items' current files."""
    calls: str
    """PUT: the gateway's calls so far, one line per call."""
    items: int
    most_bytes: int
    """Limit of each upload; larger files aren't uploaded."""
    corpus: tuple[str, ...] = ()
    """GET: the tars of the run's corpus."""


def fetch(config: TransferConfig, inputs: Path, outputs: Path) -> None:
    """Download the inputs, and create the items' output folders; exit on failure."""
    fetch_archive("the inputs", config.inputs, inputs)
    sealed, files = outputs / SEALED, outputs / "files"
    if (inputs / SEALED).is_dir():
        # The rollout program can remove it there, because /in is read-only.
        shutil.copytree(inputs / SEALED, sealed)
        shutil.rmtree(inputs / SEALED)
    for folder in (files, *(files / str(index) for index in range(config.items))):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o777)
    for folder in (sealed, *sealed.glob("*")) if sealed.is_dir() else ():
        folder.chmod(0o777)


def fetch_archive(what: str, url: str, folder: Path) -> None:
    """Download a tar and extract it into a folder; exit on failure."""
    import httpx

    try:
        # Streamed, because the inputs of a large stage don't fit into the container's memory.
        with httpx.stream("GET", url, timeout=HTTP_SECONDS) as response:
            response.raise_for_status()
            extract(response.iter_bytes(), folder)
    except (httpx.HTTPError, OSError) as error:
        # The error's message contains the signed URL.
        sys.exit(f"{what} could not be fetched: {type(error).__name__}")


@dataclass
class Delivery:
    """Uploads everything that changed since the last time."""

    config: TransferConfig
    client: "httpx.Client"
    outputs: Path
    calls: Path
    _sent: dict[str, str] = field(default_factory=dict)

    def deliver(self) -> bool:
        """Upload files before the rows that name them, and return whether all uploads succeeded."""
        import httpx

        rows = self._plain(self.outputs, TRAJECTORIES)
        files = pack_files(plain_outputs(self.outputs, self.config.items, self.config.most_bytes))
        try:
            self._put(self.config.files, files)
            self._put(self.config.trajectories, rows)
            self._put(self.config.calls, self._plain(self.calls.parent, self.calls.name))
        except httpx.HTTPError as error:
            # The error's message contains the signed URL.
            log.warning("An upload failed: %s", type(error).__name__)
            return False
        return True

    def _plain(self, folder: Path, name: str) -> bytes:
        """Return the content of a plain file; empty if it's missing, a link or a pipe."""
        try:
            with open_folder(folder) as descriptor:
                return plain_file(descriptor, name, self.config.most_bytes)
        except FileNotFoundError:
            return b""
        except OSError as error:
            log.warning("%s is not uploaded: %s", name, error)
            return b""

    def _put(self, url: str, content: bytes) -> None:
        digest = hashlib.sha256(content).hexdigest()
        if content and self._sent.get(url) != digest:
            self.client.put(url, content=content).raise_for_status()
            self._sent[url] = digest


def plain_outputs(outputs: Path, items: int, limit: int) -> Iterator[tuple[str, bytes]]:
    """Yield the plain files below files/<index>, up to `limit` bytes."""
    for index in range(items):
        try:
            with open_folder(outputs, "files", str(index)) as folder:
                with os.scandir(folder) as entries:
                    names = files_to_score(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
                for name in names:
                    try:
                        content = plain_file(folder, name, limit)
                    except OSError as error:
                        log.warning("File %.100r of item %d is not uploaded: %s", name, index, error)
                        continue
                    limit -= len(content)
                    yield f"{index}/{name}", content
        except OSError:
            # The folder is missing, or the program replaced it with something else.
            continue


def deliver(config: TransferConfig, outputs: Path, calls: Path, ended: threading.Event) -> None:
    """Upload every few seconds until `ended` is set, and once more then."""
    import httpx

    with httpx.Client(timeout=HTTP_SECONDS) as client:
        delivery = Delivery(config, client, outputs, calls)
        while not ended.wait(DELIVER_SECONDS):
            delivery.deliver()
        for _ in range(LAST_TRIES):
            if delivery.deliver():
                return
            time.sleep(1.0)


def main(arguments: list[str]) -> None:
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    # httpx logs the signed URLs at level INFO.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    what, config_path, *folders = arguments
    document = sys.stdin.buffer.readline() if config_path == "-" else Path(config_path).read_bytes()
    config = TransferConfig.model_validate_json(document)
    first, second, *third = (Path(folder) for folder in folders)
    if what == "fetch":
        fetch(config, first, second)
        for corpus in third:
            for url in config.corpus:
                fetch_archive("the corpus", url, corpus)
        return
    ended = threading.Event()
    # In a thread, because this one may hold the event's lock when the signal arrives.
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=ended.set).start())
    deliver(config, first, second, ended)


if __name__ == "__main__":
    main(sys.argv[1:])
