"""The connection to a Docker engine, and pulling images there."""

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
"""Seconds to wait for a response of the engine."""


def image_digest(image: str, sandbox: SandboxGroup) -> str:
    """Pull an image if necessary; return its digest in a registry, or else its ID.

    Raises EngineUnavailable, or ImageMissing if the engine can't pull it.
    """
    with find_engine(sandbox.conn_id).open_client() as client:
        ensure_image(client, image, again=sandbox.renews(image))
        details = client.inspect_image(image)
    repository = image.partition("@")[0]
    if ":" in repository.rpartition("/")[2]:
        repository = repository.rpartition(":")[0]
    digests = [digest for digest in details.get("RepoDigests") or [] if digest.partition("@")[0] == repository]
    return str(digests[0] if digests else details["Id"])


def has_image(image: str, sandbox: SandboxGroup) -> bool:
    """Return whether the engine already has an image. Raises EngineUnavailable."""
    engine = find_engine(sandbox.conn_id)
    with connection_errors(engine.url), engine.open_client() as client:
        return is_present(client, image)


def is_present(client: Any, image: str) -> bool:
    from docker.errors import ImageNotFound

    try:
        client.inspect_image(image)
    except ImageNotFound:
        return False
    return True


@dataclass(frozen=True)
class Engine:
    hook: DockerHook
    url: str
    network: str | None = None
    """Network of gateways and couriers on this engine; if None, the engine's default network."""

    @property
    def shares_files(self) -> bool:
        """Return whether the engine can mount the worker's files, because it runs on the same host."""
        return self.url.startswith("unix://")

    @contextmanager
    def open_client(self) -> Iterator[Any]:
        """Yield the engine's low-level client. Raises EngineUnavailable.

        Keepalive ends its connections within 3 minutes of the host's failure.
        """
        from urllib3.connection import HTTPConnection

        with connection_errors(self.url):
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


def find_engine(conn_id: str | None, docker_url: str | None = None) -> Engine:
    """Return the engine of a connection, or the worker's own.

    The connection's host is a URL such as tcp://10.0.0.5:2376. Its extra may contain `verify`, `network` for gateways
    and couriers, and `ca_cert`, `client_cert` and `client_key`, which are paths of PEM files. Raises ConfigError if it
    has no host, or only some of the three files.
    """
    from airflow.providers.docker.hooks.docker import DockerHook

    if conn_id is None:
        url = docker_url or os.environ.get("DOCKER_HOST", DEFAULT_URL)
        return Engine(DockerHook(docker_conn_id=None, base_url=url, timeout=TIMEOUT), url)
    connection = DockerHook.get_connection(conn_id)
    if not connection.host:
        raise ConfigError(f"connection {conn_id}: it has no host. Set one, such as tcp://10.0.0.5:2376.")
    url = connection.host if "://" in connection.host else f"tcp://{connection.host}:{connection.port or 2376}"
    extra = connection.extra_dejson
    files = {name: extra.get(name) for name in ("ca_cert", "client_cert", "client_key")}
    if any(files.values()) and not all(files.values()):
        raise ConfigError(
            f"connection {conn_id}: its extra has only some of ca_cert, client_cert and client_key. Set all or none."
        )
    tls = DockerHook.construct_tls_config(**files, verify=bool(extra.get("verify", True)))
    # With the connection's ID, the hook would use it to log in to a registry.
    hook = DockerHook(docker_conn_id=None, base_url=url, tls=tls, timeout=TIMEOUT)
    return Engine(hook, url, extra.get("network"))


@contextmanager
def connection_errors(url: str) -> Iterator[None]:
    from airflow.sdk.exceptions import AirflowException
    from docker.errors import DockerException
    from requests import RequestException

    try:
        yield
    except (AirflowException, DockerException, RequestException) as error:
        raise EngineUnavailable(
            f"no Docker engine responds at {url} ({error}). Start one, or set DOCKER_HOST to a running one."
        ) from error


@contextmanager
def engine_errors(url: str) -> Iterator[None]:
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
    """Pull the image, which a knob names, if it is missing, or `again`. Raises ImageMissing."""
    from docker.errors import APIError, ImageNotFound
    from requests import RequestException

    reason = "no registry knows an image by its ID"
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
        f"{knob} = {image}: the engine does not have this image and cannot pull it ({reason}). Build it, or set {knob} "
        "to an image that it can pull. `make up` builds the sandbox image; `make image NAME=...` builds codex, "
        "claude_code, alfworld and gateway."
    )
