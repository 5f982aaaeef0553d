"""The program that moves a sandbox's inputs in and its outputs out, where it sees none of the worker's files.

`python -m skillopt_airflow.sandbox.kubernetes.courier fetch CONFIG /in /out` runs before the rollout program, with
/corpus at its end where the run has a corpus, and `deliver CONFIG /out CALLS` beside it until it is told to end. CONFIG
is a file, or `-` for a line of standard input. Both hold addresses of single objects of the store and no other
credentials.
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
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from skillopt_airflow.core.values.types import Value, files_to_score
from skillopt_airflow.sandbox.untrusted_output import extract, opened_folder, packed_files, plain_file
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
    """Signed addresses, good for the sandbox's life, and limits."""

    inputs: str
    """GET: a tar of what /in holds."""
    trajectories: str
    """PUT: trajectories.jsonl as it is so far."""
    files: str
    """PUT: a tar of what the items left so far."""
    calls: str
    """PUT: the gateway's calls so far, a line each."""
    items: int
    most_bytes: int
    """Limit of each upload; what is larger stays where it is."""
    corpus: tuple[str, ...] = ()
    """GET: the tars of the run's corpus."""


def fetch(config: TransferConfig, inputs: Path, outputs: Path) -> None:
    """Fill the folder of the inputs, and make the folders that items may leave files in; exit if that fails."""
    fetch_archive("the inputs", config.inputs, inputs)
    sealed, files = outputs / SEALED, outputs / "files"
    if (inputs / SEALED).is_dir():
        # Only there can the rollout program remove it.
        shutil.copytree(inputs / SEALED, sealed)
        shutil.rmtree(inputs / SEALED)
    for folder in (files, *(files / str(index) for index in range(config.items))):
        folder.mkdir(exist_ok=True)
        folder.chmod(0o777)
    for folder in (sealed, *sealed.glob("*")) if sealed.is_dir() else ():
        folder.chmod(0o777)


def fetch_archive(what: str, address: str, folder: Path) -> None:
    """Fill a folder from the tar at an address; exit if that fails."""
    import httpx

    try:
        # In pieces: the inputs of a large stage are more than the container's memory.
        with httpx.stream("GET", address, timeout=HTTP_SECONDS) as answer:
            answer.raise_for_status()
            extract(answer.iter_bytes(), folder)
    except (httpx.HTTPError, OSError) as error:
        # Its text would tell the signed address.
        sys.exit(f"{what} could not be fetched: {type(error).__name__}")


@dataclass
class Delivery:
    """Uploads what has changed since the last time."""

    config: TransferConfig
    client: "httpx.Client"
    outputs: Path
    calls: Path
    _sent: dict[str, str] = field(default_factory=dict)

    def deliver(self) -> bool:
        """Upload files before the rows that name them, and return whether all of it succeeded."""
        import httpx

        rows = self._plain(self.outputs, TRAJECTORIES)
        files = tar_of_files(self.outputs, self.config.items, self.config.most_bytes)
        try:
            self._put(self.config.files, files)
            self._put(self.config.trajectories, rows)
            self._put(self.config.calls, self._plain(self.calls.parent, self.calls.name))
        except httpx.HTTPError as error:
            # Its text would tell the signed address.
            log.warning("An upload failed: %s", type(error).__name__)
            return False
        return True

    def _plain(self, folder: Path, name: str) -> bytes:
        """Return the content of a plain file, empty if there is none; a container may have left a link or a pipe."""
        try:
            with opened_folder(folder) as descriptor:
                return plain_file(descriptor, name, self.config.most_bytes)
        except FileNotFoundError:
            return b""
        except OSError as error:
            log.warning("%s is left where it is: %s", name, error)
            return b""

    def _put(self, url: str, content: bytes) -> None:
        digest = hashlib.sha256(content).hexdigest()
        if content and self._sent.get(url) != digest:
            self.client.put(url, content=content).raise_for_status()
            self._sent[url] = digest


def tar_of_files(outputs: Path, items: int, most: int) -> bytes:
    """Return the plain files below files/<index>, up to `most` bytes of them, as a tar; empty if there is none."""
    files = _files(outputs, items, most)
    first = next(files, None)
    return b"" if first is None else packed_files(chain([first], files))


def _files(outputs: Path, items: int, most: int) -> Iterator[tuple[str, bytes]]:
    for index in range(items):
        try:
            with opened_folder(outputs, "files", str(index)) as folder:
                with os.scandir(folder) as entries:
                    names = files_to_score(entry.name for entry in entries if entry.is_file(follow_symlinks=False))
                for name in names:
                    try:
                        content = plain_file(folder, name, most)
                    except OSError as error:
                        log.warning("File %.100r of item %d is left where it is: %s", name, index, error)
                        continue
                    most -= len(content)
                    yield f"{index}/{name}", content
        except OSError:
            # The program has not made the folder, or put something else there.
            continue


def deliver(config: TransferConfig, outputs: Path, calls: Path, ended: threading.Event) -> None:
    """Upload every few seconds until `ended`, and then once more."""
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
    # It tells the addresses that it asks for.
    logging.getLogger("httpx").setLevel(logging.WARNING)
    what, config_path, *folders = arguments
    document = sys.stdin.buffer.readline() if config_path == "-" else Path(config_path).read_bytes()
    config = TransferConfig.model_validate_json(document)
    first, second, *third = (Path(folder) for folder in folders)
    if what == "fetch":
        fetch(config, first, second)
        for corpus in third:
            for address in config.corpus:
                fetch_archive("the corpus", address, corpus)
        return
    ended = threading.Event()
    # In a thread, since the signal may come while this one holds the event's lock.
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=ended.set).start())
    deliver(config, first, second, ended)


if __name__ == "__main__":
    main(sys.argv[1:])
