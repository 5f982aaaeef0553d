"""Containers of a Docker engine: one of the rollout program from its making to its removal, and others that wait.

Their labels say whose they are, so that what nobody needs any more is removed.
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
from skillopt_airflow.sandbox.docker.limits import MAX_LOG_BYTES, end_of, host_options
from skillopt_airflow.sandbox.staging import ContainerFolder, container_user

SANDBOX_LABEL = "skillopt.sandbox"
"""The installation that a container belongs to."""
FOLDER_LABEL = "skillopt.folder"
ATTEMPT_LABEL = "skillopt.attempt"
ITEM_LABEL = "skillopt.item"
"""Place of its item in the workload, where an item has a container of its own."""
EXPIRES_LABEL = "skillopt.expires"
"""Unix time after which no live task can need it: each task ends its containers before."""
NEVER = ""
"""In the place of that time."""
GRACE_SECONDS = 300
CONFLICT = 409
REMOVAL_SECONDS = 3
"""Seconds that another thread may take to remove a container; a task that is stopped has only seconds."""

HEADER = struct.Struct(">BxxxL")
"""The number of the stream and the length of what follows (Docker Engine API, "Attach to a container")."""

log = logging.getLogger(__name__)


def identity(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that every attempt of one workload shares; the installation is part of them."""
    installation = os.environ.get("SKILLOPT_HOME") or os.environ.get("AIRFLOW_HOME") or "skillopt"
    return {SANDBOX_LABEL: installation} | {f"skillopt.{name}": value for name, value in labels.items()}


def expiry(seconds: float) -> dict[str, str]:
    """Return the label of what a task needs for at most so many seconds from now on."""
    return {EXPIRES_LABEL: str(round(time.time() + seconds + GRACE_SECONDS))}


def remove_all(client: Any, labels: Mapping[str, str]) -> int:
    """Remove the containers with all the labels, their volumes and folders, and return how many containers."""
    containers, volumes = _found(client, labels)
    _remove(client, containers, volumes)
    return len(containers)


def reap(client: Any) -> int:
    """Remove what tasks of this installation that are certainly dead left behind, and return how many containers."""
    containers, volumes = (
        [one for one in found if _is_dead(one.get("Labels") or {})] for found in _found(client, identity({}))
    )
    _remove(client, containers, volumes)
    return len(containers)


def remove_container(client: Any, container_id: str) -> None:
    """Remove it, running or not, unless someone else did or is at it."""
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


def _found(client: Any, labels: Mapping[str, str]) -> tuple[list[Any], list[Any]]:
    wanted = {"label": [f"{name}={value}" for name, value in labels.items()]}
    return client.containers(all=True, filters=wanted), client.volumes(filters=wanted)["Volumes"] or []


def _is_dead(labels: Mapping[str, str]) -> bool:
    moment, folder = labels.get(EXPIRES_LABEL, NEVER), labels.get(FOLDER_LABEL)
    # Of a task of another host only the time is known.
    lives = folder is not None and staging.is_held(Path(folder))
    return moment.isdecimal() and int(moment) < time.time() and not lives


def _remove(client: Any, containers: Iterable[Any], volumes: Iterable[Any]) -> None:
    from docker.errors import APIError

    for container in containers:
        remove_container(client, container["Id"])
        folder = container["Labels"].get(FOLDER_LABEL)
        if folder:
            staging.remove(Path(folder))
    for volume in volumes:
        # Another attempt may be at it.
        with suppress(APIError):
            client.remove_volume(volume["Name"], force=True)


@dataclass(frozen=True)
class Plan:
    image: str
    limits: SandboxGroup
    labels: Mapping[str, str]
    mounts: Sequence[Any]
    """docker.types.Mount of /in, /out, /gateway, and /corpus if there is one."""
    has_repository: bool = False
    """True if the image is one of an item's repository."""


@dataclass
class Container:
    """A container of the rollout program; `stopped` says that its task ends, so that it must not begin any more."""

    client: Any
    plan: Plan
    folder: ContainerFolder
    stopped: threading.Event
    _id: str = ""

    def run(self, on_start: Callable[[], None]) -> str:
        """Run it to its end, and return why an item that has no row by then is unfinished.

        Raises:
            SandboxError: the task was stopped.
            DockerException: the engine refused the container; or another error of its client.
        """
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
            raise SandboxError("the task was stopped, and its container removed")
        return end_of(state, self.plan.limits)

    def kill(self) -> bool:
        from docker.errors import APIError

        if not self._id:
            return False
        try:
            self.client.kill(self._id)
        except APIError as error:
            if self._is_to_start():
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
            # The proxies of the worker's Docker configuration may have passwords.
            use_config_proxy=False,
        )
        return str(made["Id"])

    def _follow(self) -> Mapping[str, Any]:
        """Start it, wait for its end, and return Docker's State of it then."""
        # Attached before the start: what a container says at once would be lost.
        with attached(self.client.attach(self._id, stdout=True, stderr=True, stream=True)) as frames:
            self.client.start(self._id)
            for line in lines(capped((part for _, part in frames), MAX_LOG_BYTES)):
                log.info("[sandbox] %s", line)
        self.client.wait(self._id)
        state: Mapping[str, Any] = self.client.inspect_container(self._id)["State"]
        return state

    def _is_to_start(self) -> bool:
        from docker.errors import APIError

        try:
            return bool(self.client.inspect_container(self._id)["State"]["Status"] == "created")
        except APIError:
            return False


@contextmanager
def attached(stream: Any) -> Iterator[Iterator[tuple[int, bytes]]]:
    """Yield the frames of an attached stream until its end, each with its number; close the connection in any case.

    The client's own iterator waits for the socket alone, and so misses what was read from it before: the first frame,
    if it came together with the answer's headers, and over TLS the rest of a record.
    """
    try:
        yield _frames(stream._response.raw._fp.fp)
    finally:
        # The client leaves the connection open at the end of the output, and its own `close` leaves a reader.
        with suppress(OSError):
            # It shuts down what the engine may have closed already.
            stream.close()
        stream._response.close()


def _frames(reader: Any) -> Iterator[tuple[int, bytes]]:
    # A container may say nothing for longer than a request may take.
    reader.raw._sock.settimeout(None)
    # A connection that breaks off ends the output; what became of the container is asked afterwards.
    with suppress(OSError):
        while len(header := reader.read(HEADER.size)) == HEADER.size:
            number, length = HEADER.unpack(header)
            yield number, reader.read(length)


def capped(chunks: Iterable[bytes], limit: int) -> Iterator[bytes]:
    """Yield the first `limit` bytes; read the rest, so that the writer never blocks, and drop it."""
    left = limit
    for chunk in chunks:
        if left <= 0:
            continue
        yield chunk[:left]
        left -= len(chunk)
        if left <= 0:
            yield b"\n[further output of the container is left out]\n"


def lines(chunks: Iterable[bytes]) -> Iterator[str]:
    """Yield lines that are safe to show: what a terminal or a log viewer would obey is made visible."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from map(_shown, whole)
    if rest:
        yield _shown(rest)


def _shown(line: bytes) -> str:
    return visible(line.decode(errors="replace").rstrip("\r"))


@contextmanager
def waiting(client: Any, image: str, seconds: int, **options: Any) -> Iterator[str]:
    """Run a container that only waits, for commands and archives, until the block ends; yield its id.

    The arguments are those of `created`.
    """
    with created(client, image, seconds, **options) as container:
        client.start(container)
        yield container


@contextmanager
def created(
    client: Any, image: str, seconds: int, *, user: str, labels: Mapping[str, str], **host: Any
) -> Iterator[str]:
    """Keep a container that is not started, for archives out of its image, until the block ends; yield its id.

    Args:
        seconds: after which it ends by itself once it is started.
        host: limits and mounts, as the engine's host configuration takes them.
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
    """Make a volume until the block ends; yield its name.

    Args:
        memory: options of its mount, its size among them, if it is in the engine's memory; on its disk when None.
    """
    from docker.errors import DockerException
    from requests import RequestException

    tmpfs = {"type": "tmpfs", "device": "tmpfs", "o": f"{memory},nosuid,nodev,noexec"}
    made = client.create_volume(driver="local", driver_opts=None if memory is None else tmpfs, labels=labels)
    try:
        yield str(made["Name"])
    finally:
        # A killed task's volumes are gone by now.
        with suppress(DockerException, RequestException):
            client.remove_volume(made["Name"], force=True)


def executed(
    client: Any, container: str, command: Sequence[str], *, user: str, most: int, **options: Any
) -> tuple[int | None, str]:
    """Run a command to its end; return its exit status, None if the container ended first, and what it printed.

    Args:
        most: bytes of output that are kept, from the beginning.
        options: further ones of the engine's exec, such as environment and workdir.
    """
    made = client.exec_create(container, list(command), user=user, **options)
    with attached(client.exec_start(made["Id"], stream=True)) as frames:
        said = b"".join(capped((part for _, part in frames), most)).decode(errors="replace")
    found: Mapping[str, Any] = client.exec_inspect(made["Id"])
    return found["ExitCode"], said
