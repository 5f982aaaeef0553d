"""Containers of a Docker engine: those of the rollout program, and idle ones for commands and archives.

Labels name their owner, so that later tasks can remove leftovers.
"""

import logging
import os
import struct
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from skillopt_airflow.core.config.resource_groups import SandboxGroup
from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.core.values.text import visible
from skillopt_airflow.sandbox import staging
from skillopt_airflow.sandbox.docker.limits import MAX_LOG_BYTES, end_reason, host_options
from skillopt_airflow.sandbox.staging import ContainerFolder, container_user

SANDBOX_LABEL = "skillopt.sandbox"
"""The installation that a container belongs to."""
FOLDER_LABEL = "skillopt.folder"
ATTEMPT_LABEL = "skillopt.attempt"
ITEM_LABEL = "skillopt.item"
"""Index of the container's item in the workload, if each item has a separate container."""
EXPIRES_LABEL = "skillopt.expires"
"""Unix time by which the container's task has certainly ended it."""
NEVER = ""
"""Value of `EXPIRES_LABEL` for images."""
GRACE_SECONDS = 300
CONFLICT = 409
REMOVAL_SECONDS = 3
"""Seconds to wait while another thread removes a container; a stopped task only has seconds."""

HEADER = struct.Struct(">BxxxL")
"""Stream number and payload length of a frame (Docker Engine API, "Attach to a container")."""

log = logging.getLogger(__name__)


def identity(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that all attempts of one workload share, including the installation."""
    installation = os.environ.get("SKILLOPT_HOME") or os.environ.get("AIRFLOW_HOME") or "skillopt"
    return {SANDBOX_LABEL: installation} | {f"skillopt.{name}": value for name, value in labels.items()}


def expiry(seconds: float) -> dict[str, str]:
    return {EXPIRES_LABEL: str(round(time.time() + seconds + GRACE_SECONDS))}


def remove_all(client: Any, labels: Mapping[str, str]) -> int:
    """Remove the containers with all these labels, their volumes and folders; return the number of containers."""
    containers, volumes = _list(client, labels)
    _remove(client, containers, volumes)
    return len(containers)


def remove_expired(client: Any) -> int:
    """Remove leftovers of this installation's dead tasks; return the number of containers."""
    containers, volumes = (
        [one for one in listed if _is_dead(one.get("Labels") or {})] for listed in _list(client, identity({}))
    )
    _remove(client, containers, volumes)
    return len(containers)


def remove_container(client: Any, container_id: str) -> None:
    """Remove it, running or not; if another thread is removing it, wait for that."""
    from docker.errors import APIError, NotFound
    from requests import RequestException

    try:
        client.remove_container(container_id, force=True, v=True)
    except NotFound:
        return
    except APIError as error:
        if error.status_code != CONFLICT:
            raise
        with suppress(RequestException):
            client.wait(container_id, timeout=REMOVAL_SECONDS, condition="removed")


def _list(client: Any, labels: Mapping[str, str]) -> tuple[list[Any], list[Any]]:
    filters = {"label": [f"{name}={value}" for name, value in labels.items()]}
    return client.containers(all=True, filters=filters), client.volumes(filters=filters)["Volumes"] or []


def _is_dead(labels: Mapping[str, str]) -> bool:
    expires, folder = labels.get(EXPIRES_LABEL, NEVER), labels.get(FOLDER_LABEL)
    # The folder's lock only shows a task of this host.
    is_alive = folder is not None and staging.is_locked(Path(folder))
    return expires.isdecimal() and int(expires) < time.time() and not is_alive


def _remove(client: Any, containers: Iterable[Any], volumes: Iterable[Any]) -> None:
    from docker.errors import APIError

    for container in containers:
        remove_container(client, container["Id"])
        folder = container["Labels"].get(FOLDER_LABEL)
        if folder:
            staging.remove(Path(folder))
    for volume in volumes:
        # Another attempt may be removing it.
        with suppress(APIError):
            client.remove_volume(volume["Name"], force=True)


@dataclass(frozen=True)
class Plan:
    image: str
    limits: SandboxGroup
    labels: Mapping[str, str]
    mounts: Sequence[Any]
    """docker.types.Mount of /in, /out, /gateway, and, if the run has one, /corpus."""
    has_repository: bool = False


@dataclass
class Container:
    """A container of the rollout program; once `stopped` is set, it doesn't start any more."""

    client: Any
    plan: Plan
    folder: ContainerFolder
    stopped: threading.Event
    _id: str = ""

    def run(self, on_start: Callable[[], None]) -> str:
        from docker.errors import DockerException
        from requests import RequestException
        from urllib3.exceptions import HTTPError

        state: Mapping[str, Any] = {}
        try:
            with self._mounted() as mounts:
                try:
                    self._id = self._create(mounts)
                    if not self.stopped.is_set():
                        on_start()
                        state = self._follow()
                finally:
                    if self._id:
                        remove_container(self.client, self._id)
        except (DockerException, RequestException, HTTPError):
            if not self.stopped.is_set():
                raise
        if self.stopped.is_set():
            raise SandboxError("the task was stopped, and its container was removed")
        return end_reason(state, self.plan.limits)

    def kill(self) -> bool:
        from docker.errors import APIError

        if not self._id:
            return False
        try:
            self.client.kill(self._id)
        except APIError as error:
            with suppress(APIError):
                if self.client.inspect_container(self._id)["State"]["Status"] == "created":
                    return False
            log.info("The container had already ended: %s", error.explanation)
        return True

    @contextmanager
    def _mounted(self) -> Iterator[Sequence[Any]]:
        yield self.plan.mounts

    def _create(self, mounts: Sequence[Any]) -> str:
        plan = self.plan
        config = self.client.create_host_config(
            mounts=mounts, **host_options(plan.limits, has_repository=plan.has_repository)
        )
        made = self.client.create_container(
            plan.image,
            user=container_user(),
            labels=dict(plan.labels),
            host_config=config,
            # The proxy URLs of the worker's Docker configuration may contain passwords.
            use_config_proxy=False,
        )
        return str(made["Id"])

    def _follow(self) -> Mapping[str, Any]:
        """Start it, wait for its end, and return its final State."""
        # Attached before the start, so that no output is lost.
        with open_frames(self.client.attach(self._id, stdout=True, stderr=True, stream=True)) as frames:
            self.client.start(self._id)
            for line in lines(capped((part for _, part in frames), MAX_LOG_BYTES)):
                log.info("[sandbox] %s", line)
        self.client.wait(self._id)
        state: Mapping[str, Any] = self.client.inspect_container(self._id)["State"]
        return state


@contextmanager
def open_frames(stream: Any) -> Iterator[Iterator[tuple[int, bytes]]]:
    """Yield the frames of an attached stream with their stream numbers, and close the connection afterwards.

    The client's own iterator only polls the socket, so it misses buffered data: a first frame that arrived with the
    response headers, and the rest of a TLS record.
    """
    try:
        yield _frames(stream._response.raw._fp.fp)
    finally:
        # The client doesn't close the connection at the end of the output, and its `close` leaves a reader open.
        with suppress(OSError):
            # The engine may have closed the connection already.
            stream.close()
        stream._response.close()


def _frames(reader: Any) -> Iterator[tuple[int, bytes]]:
    # A container may print nothing for longer than the client's timeout.
    reader.raw._sock.settimeout(None)
    # A broken connection only ends the output; the caller inspects the container afterwards.
    with suppress(OSError):
        while len(header := reader.read(HEADER.size)) == HEADER.size:
            number, length = HEADER.unpack(header)
            yield number, reader.read(length)


def capped(chunks: Iterable[bytes], limit: int) -> Iterator[bytes]:
    """Yield the first `limit` bytes; read and drop the rest, so that the writer never blocks."""
    left = limit
    for chunk in chunks:
        if left <= 0:
            continue
        yield chunk[:left]
        left -= len(chunk)
        if left <= 0:
            yield b"\n[further output of the container is left out]\n"


def lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Yield lines that are safe to show, with visible control characters."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from map(_shown, whole)
    if rest:
        yield _shown(rest)


def _shown(line: bytes) -> str:
    return visible(line.decode(errors="replace").rstrip("\r"))


@contextmanager
def idle_container(client: Any, image: str, seconds: int, **options: Any) -> Iterator[str]:
    """Run an idle container for commands and archives until the block ends, and yield its ID."""
    with created_container(client, image, seconds, **options) as container:
        client.start(container)
        yield container


@contextmanager
def created_container(
    client: Any, image: str, seconds: int, *, user: str, labels: Mapping[str, str], **host: Any
) -> Iterator[str]:
    """Create a container without starting it, for archives of its image, and yield its ID.

    If it's started, it lives for `seconds`. `host` are options of the HostConfig, such as limits and mounts.
    """
    made = client.create_container(
        image,
        entrypoint=["sleep", str(seconds)],
        user=user,
        labels=labels,
        host_config=client.create_host_config(**host),
        use_config_proxy=False,
    )
    try:
        yield str(made["Id"])
    finally:
        remove_container(client, made["Id"])


@contextmanager
def temporary_volume(client: Any, labels: Mapping[str, str], memory: str | None = None) -> Iterator[str]:
    """Create a volume until the block ends, and yield its name.

    `memory` are the mount options of a volume in memory, including its size; if None, the volume is on disk.
    """
    from docker.errors import DockerException
    from requests import RequestException

    tmpfs = {"type": "tmpfs", "device": "tmpfs", "o": f"{memory},nosuid,nodev,noexec"}
    made = client.create_volume(driver="local", driver_opts=None if memory is None else tmpfs, labels=labels)
    try:
        yield str(made["Name"])
    finally:
        # If the task was stopped, the volume is already gone.
        with suppress(DockerException, RequestException):
            client.remove_volume(made["Name"], force=True)


def execute(
    client: Any, container: str, command: Sequence[str], *, user: str, limit: int, **options: Any
) -> tuple[int | None, str]:
    """Run a command, and return its exit status and output; the status is None if the container ended first.

    Output after `limit` bytes is dropped. `options` are those of the engine's exec, such as environment and workdir.
    """
    made = client.exec_create(container, list(command), user=user, **options)
    with open_frames(client.exec_start(made["Id"], stream=True)) as frames:
        output = b"".join(capped((part for _, part in frames), limit)).decode(errors="replace")
    details: Mapping[str, Any] = client.exec_inspect(made["Id"])
    return details["ExitCode"], output
