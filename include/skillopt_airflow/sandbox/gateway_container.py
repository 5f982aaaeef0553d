"""The model gateway of one task: its settings, and the gateway as a container beside those that use it."""

import json
import logging
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
from skillopt_airflow.gateway.gateway_settings import GatewaySettings
from skillopt_airflow.sandbox.docker_connection import ensure_image
from skillopt_airflow.sandbox.docker_limits import gateway_options
from skillopt_airflow.sandbox.labels import identity, remove_container
from skillopt_airflow.sandbox.task_workload import Workload

START_SECONDS = 60.0
STOP_SECONDS = 5
READY = "listening"

log = logging.getLogger(__name__)


def gateway_settings(workload: Workload) -> GatewaySettings:
    """Return how the gateway is to treat the calls of a task's sandboxes.

    The limit is the run's, so that stages side by side do not exceed it together on a host.
    """
    run = {name: workload.labels[name] for name in ("store", "dag_run", "run") if name in workload.labels}
    return GatewaySettings(
        stage=workload.stage,
        dialect=workload.settings.dialect,
        max_attempts=workload.settings.max_attempts,
        call_timeout=workload.settings.call_timeout,
        max_concurrency=workload.run_concurrency,
        allowance=workload.allowance,
        shared_by=" ".join(f"{name}={value}" for name, value in identity(run).items()),
    )


def gateway_document(workload: Workload) -> JsonObject:
    """Return what the gateway's program reads, `skillopt_airflow.gateway.serve.ServeConfig`, with its secrets.

    Raises:
        ConfigError: the run has a search, whose answers only a gateway in the task can store.
    """
    if workload.search is not None:
        raise ConfigError(
            "search.conn_id: on this engine the gateway is a container of its own, which has no search; use a Docker "
            "engine that sees the worker's files, or leave search.conn_id unset for the documents of the items"
        )
    return {**gateway_settings(workload).model_dump(mode="json"), "upstream": handed_over(workload.upstream)}


def report_calls(lines: Iterable[bytes], on_call: Callable[[ModelCall], None]) -> None:
    """Report the model calls that a gateway's program wrote, a line each; a bad line is a bug and not an attack."""
    for line in lines:
        try:
            on_call(ModelCall.model_validate_json(line))
        except ValidationError:
            log.warning("The gateway wrote what is no model call: %.200r", line)


@dataclass
class GatewayContainer:
    """The gateway's program on the engine; it gets its credentials through its standard input and nowhere else."""

    client: Any
    workload: Workload
    labels: Mapping[str, str]
    network: str | None
    on_call: Callable[[ModelCall], None]

    def __post_init__(self) -> None:
        self._ready = False
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
        ensure_image(self.client, limits.gateway_image, limits.pull)
        made = self.client.create_container(
            limits.gateway_image,
            command=["--listen", f"unix:{mount['Target']}/model.sock"],
            stdin_open=True,
            labels=dict(self.labels),
            host_config=self.client.create_host_config(mounts=[mount], **gateway_options(self.network)),
        )
        self._id = str(made["Id"])
        try:
            with self._heard(), self._lifeline(json.dumps(gateway_document(self.workload)).encode() + b"\n"):
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
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            stdin._response.close()
            connection.close()

    @contextmanager
    def _heard(self) -> Iterator[None]:
        """Take what the gateway says until it has ended, its last calls included."""
        stream = self.client.attach(self._id, stdout=True, stderr=True, stream=True, demux=True)
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
        """Read until the gateway ends: a model call a line on standard output, messages on the other."""
        out = err = b""
        try:
            for said, complained in stream:
                *calls, out = (out + (said or b"")).split(b"\n")
                *words, err = (err + (complained or b"")).split(b"\n")
                report_calls(calls, self.on_call)
                for line in words:
                    self._hear(line.decode(errors="replace"))
        except OSError as error:
            log.warning("The gateway's output broke off: %s", error)
        finally:
            self._told.set()
            with suppress(OSError):
                stream.close()
                stream._response.close()

    def _hear(self, words: str) -> None:
        if words == READY:
            self._ready = True
            self._told.set()
        else:
            self._words.append(words)
            log.warning("[gateway] %.500s", words)
