"""The files of a sandbox that sees none of the worker's: a pod, or a container on an engine of another machine.

Inputs go in, and outputs come out, through a folder of the object store that the courier beside the sandbox
(`courier.py`) reaches by signed addresses. The sandbox has its own gateway, with a fixed share of the budget.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Protocol

from skillopt_airflow.core.protocols import SEALED
from skillopt_airflow.core.types import Item, JsonObject, ModelCall
from skillopt_airflow.sandbox.courier import TransferConfig
from skillopt_airflow.sandbox.docker_limits import MEGABYTE
from skillopt_airflow.sandbox.gateway_container import gateway_document, report_calls
from skillopt_airflow.sandbox.pod import START_SECONDS, deadline
from skillopt_airflow.sandbox.staging import ContainerFolder
from skillopt_airflow.sandbox.tar_archive import packed, unpack
from skillopt_airflow.sandbox.task_workload import Allotment, Workload

FETCH_SECONDS = 2.0
MAX_ADDRESS_SECONDS = 7 * 24 * 3600
"""Seconds for which S3 accepts a signed address at most."""
INPUTS, TRAJECTORIES, FILES, CALLS = "inputs.tar", "trajectories.jsonl", "files.tar", "calls.jsonl"

Secrets = tuple[JsonObject, JsonObject]
"""The documents of a sandbox's gateway and courier."""


class Exchange(Protocol):
    """A folder of the store that a sandbox reaches by signed addresses."""

    def put(self, name: str, body: bytes) -> None:
        """Leave something for the sandbox."""

    def address(self, name: str, method: Literal["get", "put"], seconds: int) -> str:
        """Return where the sandbox fetches or leaves an object, for so many seconds."""

    def shared_address(self, key: str, seconds: int) -> str:
        """Return where the sandbox fetches another object of the bucket, for so many seconds."""

    def take(self, name: str, most: int) -> bytes | None:
        """Return what the sandbox left since the last time, if it did, and if it has at most `most` bytes."""

    def clear(self) -> None:
        """Remove everything."""


Exchanges = Callable[[str], Exchange]
"""Opens a folder of the store for a workload or, inside of it, a sandbox; a name may have slashes."""


class RemoteFolder(ContainerFolder):
    """The task's copy of a sandbox's folders, which is trusted as little as what a container wrote."""

    def __init__(
        self, path: Path, exchange: Exchange, most: int, allotment: Allotment, on_call: Callable[[ModelCall], None]
    ) -> None:
        super().__init__(path)
        self._allotment = allotment
        self._exchange = exchange
        self._most = most
        self._on_call = on_call
        self._calls = 0
        self._next_fetch = 0.0

    def release(self, count: int) -> None:
        """Let the program begin all items: what is written later does not reach it."""

    def fetch(self) -> None:
        """Take what is new, every FETCH_SECONDS and once more when the sandbox has ended.

        Rows are taken first and written last: the courier leaves the files that they name before them.
        """
        if not self.ended and time.monotonic() < self._next_fetch:
            return
        self._next_fetch = time.monotonic() + FETCH_SECONDS
        rows = self._exchange.take(TRAJECTORIES, self._most)
        files = self._exchange.take(FILES, 2 * self._most)
        calls = self._exchange.take(CALLS, self._most)
        if files is not None:
            unpack(files, self.files, self._most)
        if rows is not None:
            self.trajectories.write_bytes(rows)
        if calls is not None:
            # Complete lines only, each once.
            *lines, _ = calls.split(b"\n")
            report_calls(lines[self._calls :], self._allotment, self._on_call)
            self._calls = max(self._calls, len(lines))


@contextmanager
def shipped(
    workload: Workload,
    number: int,
    items: Sequence[Item],
    staged: ContainerFolder,
    exchange: Exchange,
    gateways: int,
    on_call: Callable[[ModelCall], None],
) -> Iterator[tuple[RemoteFolder, Secrets]]:
    """Leave a sandbox's inputs in the store, and remove all that it exchanged afterwards.

    Args:
        workload: the task's.
        number: the sandbox's, from 0 on.
        items: the sandbox's.
        staged: its folders on the worker.
        exchange: its folder of the store.
        gateways: how many sandboxes of the task run at the same time, each with its gateway.
        on_call: takes the model calls that its gateway reports.
    """
    most, corpus = workload.limits.output_mb * MEGABYTE, workload.corpus
    seconds = address_seconds(workload, len(items))
    if staged.sealed.is_dir():
        staged.sealed.rename(staged.inputs / SEALED)
    try:
        exchange.put(INPUTS, packed(staged.inputs))
        transfer = TransferConfig(
            inputs=exchange.address(INPUTS, "get", seconds),
            trajectories=exchange.address(TRAJECTORIES, "put", seconds),
            files=exchange.address(FILES, "put", seconds),
            calls=exchange.address(CALLS, "put", seconds),
            items=len(items),
            most_bytes=most,
            corpus=() if corpus is None else [exchange.shared_address(key, seconds) for key in corpus.archive_keys],
        )
        coming = len(workload.items) - number if workload.one_item_each else 1
        with workload.allotted(coming) as allotment:
            gateway = gateway_document(workload, allotment.budget, gateways)
            folder = RemoteFolder(staged.path, exchange, most, allotment, on_call)
            yield folder, (gateway, transfer.model_dump(mode="json"))
    finally:
        exchange.clear()


def address_seconds(workload: Workload, items: int) -> int:
    """Return the seconds for which the signed addresses of a sandbox of so many items are good: its whole life."""
    return min(deadline(workload.limits, items) + START_SECONDS, MAX_ADDRESS_SECONDS)
