"""The files of a sandbox that sees none of the worker's: a pod, or a container on an engine of another machine.

Inputs go in, and outputs come out, through a folder of the object store that the courier beside the sandbox
(`courier.py`) reaches by signed addresses. The sandbox has its own gateway, with a fixed share of the budget.
"""

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, Protocol

from pydantic import ValidationError

from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.values.types import Item, JsonObject, ModelCall
from skillopt_airflow.gateway.backends import export_upstream
from skillopt_airflow.gateway.model_gateway import ModelGateway
from skillopt_airflow.gateway.remaining_budget import ENDED, GatewaySettings, RemainingBudget
from skillopt_airflow.sandbox.docker.limits import MEGABYTE
from skillopt_airflow.sandbox.kubernetes.courier import TransferConfig
from skillopt_airflow.sandbox.kubernetes.pod import START_SECONDS, deadline
from skillopt_airflow.sandbox.staging import ContainerFolder
from skillopt_airflow.sandbox.task_workload import Allotment, Workload
from skillopt_airflow.sandbox.untrusted_output import packed, unpack
from skillopt_airflow.tasks.protocols import SEALED

PROXIES = tuple(
    spelled for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy") for spelled in (name, name.upper())
)
"""Variables of a worker that say by which proxies it reaches the model; they may have passwords."""

FETCH_SECONDS = 2.0
MAX_ADDRESS_SECONDS = 7 * 24 * 3600
"""Seconds for which S3 accepts a signed address at most."""
INPUTS, TRAJECTORIES, FILES, CALLS = "inputs.tar", "trajectories.jsonl", "files.tar", "calls.jsonl"

Secrets = tuple[JsonObject, JsonObject]
"""The documents of a sandbox's gateway and courier."""

log = logging.getLogger(__name__)


def gateway_settings(workload: Workload, allowance: RemainingBudget, gateways: int = 1) -> GatewaySettings:
    """Return how a gateway is to treat the calls of a task's sandboxes.

    It sees no other task's gateway, so it has no more of the run's limit than its equal share.

    Args:
        allowance: amount that the gateway may spend.
        gateways: those that the task has at the same time.
    """
    return GatewaySettings(
        stage=workload.stage,
        max_attempts=workload.settings.max_attempts,
        call_timeout=workload.settings.call_timeout,
        max_tokens=workload.settings.max_tokens,
        max_concurrency=workload.run_concurrency,
        share=max(1, workload.settings.concurrency // gateways),
        allowance=allowance,
    )


def counting(allotment: Allotment, on_call: Callable[[ModelCall], None]) -> Callable[[ModelCall], None]:
    def counted(call: ModelCall) -> None:
        allotment.count(call)
        on_call(call)

    return counted


@contextmanager
def task_gateway(workload: Workload, on_call: Callable[[ModelCall], None]) -> Iterator[ModelGateway]:
    """Yield the model's gateway in the task itself, for as long as the block runs; each sandbox has its own socket."""
    with workload.allotted() as allotment:
        settings = dict(gateway_settings(workload, allotment.budget))
        count = counting(allotment, on_call)
        try:
            with ModelGateway(workload.upstream, on_call=count, search=workload.search, **settings) as gateway:
                yield gateway
        finally:
            allotment.complete()


def gateway_document(workload: Workload, allowance: RemainingBudget, gateways: int = 1) -> JsonObject:
    """Return what the gateway's program reads, `skillopt_airflow.gateway.serve.ServeConfig`, with its secrets.

    Raises:
        ConfigError: the run has a search, whose answers only a gateway in the task can store.
    """
    if workload.search is not None:
        raise ConfigError(
            "search.conn_id: on this engine the gateway is a container of its own, which has no search; use a Docker "
            "engine of the worker's host, or leave search.conn_id unset for the documents of the items"
        )
    settings = gateway_settings(workload, allowance, gateways).model_dump(mode="json")
    proxies: JsonObject = {name: os.environ[name] for name in PROXIES if name in os.environ}
    return {**settings, "upstream": export_upstream(workload.upstream), "proxies": proxies}


def report_calls(lines: Iterable[bytes], allotment: Allotment, on_call: Callable[[ModelCall], None]) -> None:
    """Report the model calls that a gateway's program wrote, a line each; a bad line is a bug and not an attack."""
    count = counting(allotment, on_call)
    for line in lines:
        if line == ENDED:
            allotment.complete()
            continue
        try:
            count(ModelCall.model_validate_json(line))
        except ValidationError:
            log.warning("The gateway wrote what is no model call: %.200r", line)


class Exchange(Protocol):
    """A folder of the store that a sandbox reaches by signed addresses."""

    def put(self, name: str, body: bytes) -> None: ...

    def address(self, name: str, method: Literal["get", "put"], seconds: int) -> str:
        """Return where the sandbox fetches or leaves an object, for so many seconds."""

    def shared_address(self, key: str, seconds: int) -> str:
        """Return where the sandbox fetches another object of the bucket, for so many seconds."""

    def take(self, name: str, most: int) -> bytes | None:
        """Return what the sandbox left since the last time, if it did, and if it has at most `most` bytes."""

    def clear(self) -> None: ...


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
        number: the sandbox's, from 0 on.
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
