"""Reaching a Docker engine, and having the sandbox image there."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from skillopt_airflow.core.config.resource_groups import SandboxGroup
from skillopt_airflow.core.errors import ConfigError, EngineUnavailable, ImageMissing, SandboxError

if TYPE_CHECKING:
    from airflow.providers.docker.hooks.docker import DockerHook

DEFAULT_URL = "unix:///var/run/docker.sock"
TIMEOUT = 60
"""Seconds that the engine may take for an answer."""


def image_digest(image: str, sandbox: SandboxGroup) -> str:
    """Have an image on the engine, and return the digest under which a registry has it, or else its id.

    Raises:
        EngineUnavailable: no engine answers.
        ImageMissing: the engine does not have the image and cannot pull it.
    """
    with found(sandbox.conn_id).opened() as client:
        ensure_image(client, image, again=sandbox.renews(image))
        details = client.inspect_image(image)
    repository = image.partition("@")[0]
    if ":" in repository.rpartition("/")[2]:
        repository = repository.rpartition(":")[0]
    digests = [digest for digest in details.get("RepoDigests") or [] if digest.partition("@")[0] == repository]
    return str(digests[0] if digests else details["Id"])


def has_image(image: str, sandbox: SandboxGroup) -> bool:
    """Return whether the engine has an image, without a try to pull it.

    Raises:
        EngineUnavailable: no engine answers.
    """
    from docker.errors import ImageNotFound

    engine = found(sandbox.conn_id)
    with reached(engine.url), engine.opened() as client:
        try:
            client.inspect_image(image)
        except ImageNotFound:
            return False
    return True


@dataclass(frozen=True)
class Engine:
    """The address of an engine, from a connection or the worker's environment."""

    hook: DockerHook
    url: str
    network: str | None = None
    """The network of gateways and couriers that run there; the engine's default one when unset."""

    @property
    def shares_files(self) -> bool:
        """Return whether it mounts the worker's files: it has a socket on the worker's host, not an address."""
        return self.url.startswith("unix://")

    @contextmanager
    def opened(self) -> Iterator[Any]:
        """Yield its low-level client, whose connections break within three minutes of its host's end.

        It reads what containers say without a time limit.

        Raises:
            EngineUnavailable: no engine answers.
        """
        from urllib3.connection import HTTPConnection

        with reached(self.url):
            client: Any = self.hook.api_client
        options = [
            *HTTPConnection.default_socket_options,
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 60),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 15),
            (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 8),
        ]
        for adapter in client.adapters.values():
            adapter.poolmanager.connection_pool_kw["socket_options"] = options
        with closing(client):
            yield client


def found(conn_id: str | None, docker_url: str | None = None) -> Engine:
    """Return the engine of a connection, or the worker's own.

    The connection's host is the address, such as tcp://10.0.0.5:2376; its extra may hold `ca_cert`, `client_cert` and
    `client_key`, paths of PEM files as DockerOperator takes them, `verify`, and `network` for gateways and couriers.

    Raises:
        ConfigError: the connection has no host, or only a part of the three files.
    """
    from airflow.providers.docker.hooks.docker import DockerHook

    if conn_id is None:
        url = docker_url or os.environ.get("DOCKER_HOST", DEFAULT_URL)
        return Engine(DockerHook(docker_conn_id=None, base_url=url, timeout=TIMEOUT), url)
    connection = DockerHook.get_connection(conn_id)
    if not connection.host:
        raise ConfigError(f"the connection {conn_id} has no host: give it one such as tcp://10.0.0.5:2376")
    url = connection.host if "://" in connection.host else f"tcp://{connection.host}:{connection.port or 2376}"
    extra = connection.extra_dejson
    files = {name: extra.get(name) for name in ("ca_cert", "client_cert", "client_key")}
    if any(files.values()) and not all(files.values()):
        raise ConfigError(f"the connection {conn_id} needs ca_cert, client_cert and client_key, or none of them")
    tls = DockerHook.construct_tls_config(**files, verify=bool(extra.get("verify", True)))
    # The connection is the engine's, not a registry's: with its id the hook would log in there.
    hook = DockerHook(docker_conn_id=None, base_url=url, tls=tls, timeout=TIMEOUT)
    return Engine(hook, url, extra.get("network"))


@contextmanager
def reached(url: str) -> Iterator[None]:
    """Raise EngineUnavailable, which says what to do, for errors of the engine's client."""
    from airflow.sdk.exceptions import AirflowException
    from docker.errors import DockerException
    from requests import RequestException

    try:
        yield
    except (AirflowException, DockerException, RequestException) as error:
        raise EngineUnavailable(
            f"no Docker engine answers at {url}: start one, or point DOCKER_HOST at one that runs ({error})"
        ) from error


@contextmanager
def judged(url: str) -> Iterator[None]:
    """Raise EngineUnavailable, ImageMissing or SandboxError for errors of the engine's client at work."""
    from docker.errors import APIError, DockerException, ImageNotFound
    from requests import RequestException
    from urllib3.exceptions import HTTPError

    try:
        yield
    except ImageNotFound as error:
        raise ImageMissing(f"the Docker engine at {url} lost the sandbox image: {error.explanation}") from error
    except APIError as error:
        raise SandboxError(f"the Docker engine at {url} refused the sandbox: {error.explanation}") from error
    except (DockerException, RequestException, HTTPError, ConnectionError, TimeoutError) as error:
        raise EngineUnavailable(f"the Docker engine at {url} went away: {error}") from error


def ensure_image(client: Any, image: str, *, again: bool = False, knob: str = "sandbox.image") -> None:
    """Pull the image, which a knob names, if it is missing, or `again`.

    Raises:
        ImageMissing: the engine does not have the image and cannot pull it.
    """
    from docker.errors import APIError, ImageNotFound
    from requests import RequestException

    reason = "an id is no name in any registry"
    pulls = [True] if again else [False] if image.startswith("sha256:") else [False, True]
    for pull in pulls:
        try:
            if pull:
                client.pull(image)
            client.inspect_image(image)
            return
        except ImageNotFound as error:
            reason = str(error) if pull else reason
        except (APIError, RequestException) as error:
            reason = str(error)
    raise ImageMissing(
        f"the engine does not have the image {image} and cannot pull it: build it (`make up` does for the sandbox, and "
        f"for an agent CLI, ALFWorld or the gateway `make image NAME=codex`, NAME=claude_code, NAME=alfworld or "
        f"NAME=gateway), or set {knob} to one that can be pulled ({reason})"
    )
