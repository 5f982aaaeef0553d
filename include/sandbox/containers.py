"""The Docker engine as the operator uses it: hardened containers, a capped log, labels, leftovers."""

import logging
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from include.sandbox import staging

SANDBOX_LABEL = "skillopt.sandbox"
FOLDER_LABEL = "skillopt.folder"
ATTEMPT_LABEL = "skillopt.attempt"
MAX_LOG_BYTES = 64 * 1024
CONFLICT = 409

log = logging.getLogger(__name__)


class HardenedClient:
    """Docker's API client, except that every container gets our host options and a bounded log.

    `state` is the last container's State (exit code, OOMKilled) as it was before its removal.
    """

    def __init__(self, client: Any, options: Mapping[str, Any]) -> None:
        self._client = client
        self._options = options
        self.state: Mapping[str, Any] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def create_host_config(self, **arguments: Any) -> Any:
        """Docker's HostConfig; our options win."""
        return self._client.create_host_config(**{**arguments, **self._options})

    def attach(self, **arguments: Any) -> Iterator[bytes]:
        """The container's output, of which the task log keeps the beginning."""
        # Attached here and now, not at the first read: what a container says before that would be lost.
        return _closing(self._client.attach(**arguments))

    def wait(self, container: str) -> Any:
        """Wait for the end, and keep what an engine forgets with the container."""
        result = self._client.wait(container)
        self.state = self._client.inspect_container(container)["State"]
        return result

    def remove_container(self, container: str, **arguments: Any) -> None:
        """Remove it, unless someone else did or is at it."""
        from docker.errors import APIError, NotFound

        try:
            self._client.remove_container(container, **arguments)
        except NotFound:
            return
        except APIError as error:
            if error.status_code != CONFLICT:
                raise


def capped(chunks: Iterable[bytes], limit: int) -> Iterator[bytes]:
    """The first `limit` bytes; the rest is read, so that the writer never blocks, and dropped."""
    left = limit
    for chunk in chunks:
        if left <= 0:
            continue
        yield chunk[:left]
        left -= len(chunk)
        if left <= 0:
            yield b"\n[further output of the container is left out]\n"


def _closing(stream: Any) -> Iterator[bytes]:
    """Docker's client leaves the connection open when the container ends, and its own `close` leaves a reader."""
    from docker.errors import DockerException

    try:
        yield from capped(stream, MAX_LOG_BYTES)
    finally:
        with suppress(OSError, DockerException):
            stream.close()
            stream._response.close()


def identity(labels: Mapping[str, str]) -> dict[str, str]:
    """The labels that every attempt of one workload shares; the installation is part of them."""
    installation = os.environ.get("SKILLOPT_HOME") or os.environ.get("AIRFLOW_HOME") or "skillopt"
    return {SANDBOX_LABEL: installation} | {f"skillopt.{name}": value for name, value in labels.items()}


def remove_all(client: HardenedClient, labels: Mapping[str, str]) -> int:
    """Remove the containers that carry all the labels, and the folders staged for them; how many there were."""
    wanted = [f"{name}={value}" for name, value in labels.items()]
    found = client.containers(all=True, filters={"label": wanted})
    for container in found:
        client.remove_container(container["Id"], force=True)
        folder = container["Labels"].get(FOLDER_LABEL)
        if folder:
            staging.remove(Path(folder))
    return len(found)
