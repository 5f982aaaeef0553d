"""The files of a sandbox without access to the worker's: a pod, or a container on another machine's engine.

The courier (`courier.py`) moves inputs and outputs through a folder of the object store, with signed URLs. The sandbox
has its own gateway, with a fixed share of the budget.
"""

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
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
from skillopt_airflow.sandbox.untrusted_output import pack_folder, unpack
from skillopt_airflow.tasks.protocols import SEALED

PROXIES = tuple(
    spelled for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy") for spelled in (name, name.upper())
)
"""Environment variables with the worker's proxies; their URLs may contain passwords."""

FETCH_SECONDS = 2.0
MAX_ADDRESS_SECONDS = 7 * 24 * 3600
"""Maximum lifetime of a signed URL on S3."""
INPUTS, TRAJECTORIES, FILES, CALLS = "inputs.tar", "trajectories.jsonl", "files.tar", "calls.jsonl"

Secrets = tuple[JsonObject, JsonObject]
"""The documents of a sandbox's gateway and courier."""

log = logging.getLogger(__name__)


def gateway_settings(workload: Workload, allowance: RemainingBudget, gateways: int = 1) -> GatewaySettings:
    """Return the settings of one of a task's concurrent gateways, each with an equal share of the concurrency."""
    return GatewaySettings(
        stage=workload.stage,
        max_attempts=workload.settings.max_attempts,
        call_timeout=workload.settings.call_timeout,
        max_tokens=workload.settings.max_tokens,
        max_concurrency=workload.run_concurrency,
        share=max(1, workload.settings.concurrency // gateways),
        allowance=allowance,
    )


@contextmanager
def task_gateway(workload: Workload, on_call: Callable[[ModelCall], None]) -> Iterator[ModelGateway]:
    """Run the model's gateway in the task itself; each sandbox has its own socket."""
    with workload.allotted() as allotment:
        settings = dict(gateway_settings(workload, allotment.budget))

        def count(call: ModelCall) -> None:
            allotment.count(call)
            on_call(call)

        try:
            with ModelGateway(workload.upstream, on_call=count, search=workload.search, **settings) as gateway:
                yield gateway
        finally:
            allotment.complete()


def gateway_document(workload: Workload, allowance: RemainingBudget, gateways: int = 1) -> JsonObject:
    """Return the gateway's `ServeConfig` with its secrets. Raises ConfigError if the run has a web search."""
    if workload.search is not None:
        raise ConfigError(
            "search.conn_id: on this engine the gateway is a separate container, which has no web search. Use a Docker "
            "engine on the worker's host, or unset search.conn_id to search the items' documents."
        )
    settings = gateway_settings(workload, allowance, gateways).model_dump(mode="json")
    proxies: JsonObject = {name: os.environ[name] for name in PROXIES if name in os.environ}
    return {**settings, "upstream": export_upstream(workload.upstream), "proxies": proxies}


class Exchange(Protocol):
    """A folder of the store that a sandbox accesses by signed URLs."""

    def put(self, name: str, body: bytes) -> None: ...

    def signed_url(self, name: str, method: Literal["get", "put"], seconds: int) -> str: ...

    def shared_url(self, key: str, seconds: int) -> str:
        """Return the signed URL for a GET of another object of the bucket."""

    def take(self, name: str, limit: int) -> bytes | None:
        """Return a changed object of at most `limit` bytes, or None."""

    def clear(self) -> None: ...


Exchanges = Callable[[str], Exchange]
"""Opens the store's folder of a workload or a sandbox; a name may contain slashes."""


class RemoteFolder(ContainerFolder):
    """The task's copy of a sandbox's folders, as untrusted as a container's output."""

    def __init__(
        self, path: Path, exchange: Exchange, limit: int, allotment: Allotment, on_call: Callable[[ModelCall], None]
    ) -> None:
        super().__init__(path)
        self._allotment = allotment
        self._exchange = exchange
        self._limit = limit
        self._on_call = on_call
        self._calls = 0
        self._next_fetch = 0.0

    def release(self, count: int) -> None:
        """Do nothing: later writes don't reach the program, so it may start all items."""

    def fetch(self) -> None:
        """Copy new outputs every FETCH_SECONDS, and once more when the sandbox has ended.

        Rows are read first and written last, because the courier uploads their files before them.
        """
        if not self.ended and time.monotonic() < self._next_fetch:
            return
        self._next_fetch = time.monotonic() + FETCH_SECONDS
        rows = self._exchange.take(TRAJECTORIES, self._limit)
        files = self._exchange.take(FILES, 2 * self._limit)
        calls = self._exchange.take(CALLS, self._limit)
        if files is not None:
            unpack(files, self.files, self._limit)
        if rows is not None:
            self.trajectories.write_bytes(rows)
        if calls is not None:
            # Only complete lines, each once.
            *lines, _ = calls.split(b"\n")
            for line in lines[self._calls :]:
                self._report(line)
            self._calls = max(self._calls, len(lines))

    def _report(self, line: bytes) -> None:
        if line == ENDED:
            self._allotment.complete()
            return
        try:
            call = ModelCall.model_validate_json(line)
        except ValidationError:
            log.warning("The gateway wrote an invalid model call: %.200r", line)
            return
        self._allotment.count(call)
        self._on_call(call)


@contextmanager
def open_remote_folder(
    workload: Workload,
    number: int,
    items: Sequence[Item],
    staged: ContainerFolder,
    exchange: Exchange,
    gateways: int,
    on_call: Callable[[ModelCall], None],
) -> Iterator[tuple[RemoteFolder, Secrets]]:
    """Upload a sandbox's inputs, and clear its folder of the store afterwards.

    `number` is the sandbox's index, from 0. `gateways` is the number of the task's concurrent sandboxes.
    """
    limit, corpus = workload.limits.output_mb * MEGABYTE, workload.corpus
    seconds = url_seconds(workload, len(items))
    if staged.sealed.is_dir():
        staged.sealed.rename(staged.inputs / SEALED)
    try:
        exchange.put(INPUTS, pack_folder(staged.inputs))
        transfer = TransferConfig(
            inputs=exchange.signed_url(INPUTS, "get", seconds),
            trajectories=exchange.signed_url(TRAJECTORIES, "put", seconds),
            files=exchange.signed_url(FILES, "put", seconds),
            calls=exchange.signed_url(CALLS, "put", seconds),
            items=len(items),
            most_bytes=limit,
            corpus=() if corpus is None else [exchange.shared_url(key, seconds) for key in corpus.archive_keys],
        )
        remaining = len(workload.items) - number if workload.one_item_each else 1
        with workload.allotted(remaining) as allotment:
            gateway = gateway_document(workload, allotment.budget, gateways)
            folder = RemoteFolder(staged.path, exchange, limit, allotment, on_call)
            yield folder, (gateway, transfer.model_dump(mode="json"))
    finally:
        exchange.clear()


def url_seconds(workload: Workload, items: int) -> int:
    """Return the lifetime of a sandbox's signed URLs, which covers the sandbox's own."""
    return min(deadline(workload.limits, items) + START_SECONDS, MAX_ADDRESS_SECONDS)
