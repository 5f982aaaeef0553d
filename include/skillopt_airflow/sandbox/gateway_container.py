"""The model gateway of one task: its settings, and the gateway as a container beside those that use it."""

import json
import logging
import os
import socket
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from skillopt_airflow.core.errors import ConfigError, SandboxError
from skillopt_airflow.core.types import JsonObject, ModelCall
from skillopt_airflow.gateway.backends import handed_over
from skillopt_airflow.gateway.gateway_settings import ENDED, GatewaySettings
from skillopt_airflow.gateway.model_gateway import ModelGateway
from skillopt_airflow.gateway.remaining_budget import RemainingBudget
from skillopt_airflow.sandbox.docker_connection import ensure_image
from skillopt_airflow.sandbox.docker_limits import gateway_options
from skillopt_airflow.sandbox.docker_output import STDOUT, attached
from skillopt_airflow.sandbox.labels import remove_container
from skillopt_airflow.sandbox.task_workload import Allotment, Workload

START_SECONDS = 60.0
STOP_SECONDS = 5
READY = "listening"
PROXIES = tuple(
    spelled for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy") for spelled in (name, name.upper())
)
"""Variables of a worker that say by which proxies it reaches the model; they may have passwords."""

log = logging.getLogger(__name__)


def gateway_settings(workload: Workload, allowance: RemainingBudget, gateways: int = 1) -> GatewaySettings:
    """Return how a gateway is to treat the calls of a task's sandboxes.

    It sees no other task's gateway, so it has no more of the run's limit than its equal share.

    Args:
        workload: the task's.
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
    """Return a receiver that counts a call before it passes it on."""

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
            "engine that sees the worker's files, or leave search.conn_id unset for the documents of the items"
        )
    settings = gateway_settings(workload, allowance, gateways).model_dump(mode="json")
    proxies: JsonObject = {name: os.environ[name] for name in PROXIES if name in os.environ}
    return {**settings, "upstream": handed_over(workload.upstream), "proxies": proxies}


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


@dataclass
class GatewayContainer:
    """The gateway's program on the engine; it gets its credentials through its standard input and nowhere else."""

    client: Any
    workload: Workload
    labels: Mapping[str, str]
    network: str | None
    allotment: Allotment
    on_call: Callable[[ModelCall], None]

    def __post_init__(self) -> None:
        self._ready = self._closing = False
        self._told = threading.Event()
        """Set once it listens, or has ended."""
        self._words: list[str] = []
        self._id = ""

    @contextmanager
    def listening(self, mount: Any) -> Iterator[None]:
        """Serve at model.sock in the mounted folder as long as the block runs.

        Raises:
            ImageMissing: the engine does not have the gateway's image and may not or cannot pull it.
            SandboxError: the gateway did not start.
        """
        limits = self.workload.limits
        image = limits.registered(limits.gateway_image)
        ensure_image(self.client, image, limits.pull, "sandbox.gateway_image")
        made = self.client.create_container(
            image,
            command=["--listen", f"unix:{mount['Target']}/model.sock"],
            stdin_open=True,
            labels=dict(self.labels),
            host_config=self.client.create_host_config(mounts=[mount], **gateway_options(self.network)),
            use_config_proxy=False,
        )
        self._id = str(made["Id"])
        try:
            document = gateway_document(self.workload, self.allotment.budget)
            with self._heard(), self._lifeline(json.dumps(document).encode() + b"\n"):
                self._told.wait(START_SECONDS)
                if not self._ready:
                    raise SandboxError(f"the model gateway did not start on the engine: {' | '.join(self._words[-3:])}")
                yield
        finally:
            remove_container(self.client, self._id)

    @contextmanager
    def _lifeline(self, document: bytes) -> Iterator[None]:
        """Start the gateway, and hold its standard input: when that ends, also because this task is dead, it ends."""
        stdin = self.client.attach_socket(self._id, params={"stdin": 1, "stream": 1})
        connection = getattr(stdin, "_sock", stdin)
        try:
            self.client.start(self._id)
            connection.sendall(document)
            yield
        finally:
            self._closing = True
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            stdin._response.close()
            connection.close()

    @contextmanager
    def _heard(self) -> Iterator[None]:
        """Take what the gateway says until it has ended, its last calls included."""
        stream = self.client.attach(self._id, stdout=True, stderr=True, stream=True)
        reader = threading.Thread(target=self._read, args=(stream,), name="gateway-output", daemon=True)
        reader.start()
        try:
            yield
        finally:
            reader.join(STOP_SECONDS)
            # Deaf or never started: the stream ends with the container.
            if reader.is_alive():
                remove_container(self.client, self._id)
                reader.join()

    def _read(self, stream: Any) -> None:
        """Read until the gateway ends: a model call per line of standard output, messages on the other."""
        out = err = b""
        try:
            with attached(stream) as frames:
                for number, part in frames:
                    if number == STDOUT:
                        *calls, out = (out + part).split(b"\n")
                        report_calls(calls, self.allotment, self.on_call)
                    else:
                        *words, err = (err + part).split(b"\n")
                        for line in words:
                            self._hear(line.decode(errors="replace"))
        except OSError as error:
            log.warning("The gateway's output broke off: %s", error)
        finally:
            if self._ready and not self._closing:
                log.error(
                    "The model gateway ended before its task, so rollouts fail until the task is tried again: %s",
                    " | ".join(self._words[-3:]) or "it said nothing, as one that had no memory left",
                )
            self._told.set()

    def _hear(self, words: str) -> None:
        if words == READY:
            self._ready = True
            self._told.set()
        else:
            self._words.append(words)
            log.warning("[gateway] %.500s", words)
