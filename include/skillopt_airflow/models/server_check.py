"""The check before a run that a connection's servers answer, accept the key and have the harness's path."""

import json
from contextlib import aclosing
from typing import TYPE_CHECKING

from skillopt_airflow.core.config.harnesses import HARNESSES, HarnessName
from skillopt_airflow.core.errors import ModelConnectionError, ModelUnavailable, ModelUnreachable
from skillopt_airflow.gateway.upstream import Upstream
from skillopt_airflow.models.connection import chain, is_translated, model_of, upstream_of
from skillopt_airflow.models.providers import ADDRESSES, ModelConnection, check_has_key

if TYPE_CHECKING:
    import httpx

UNAVAILABLE_STATUSES = (502, 503, 504)
"""A proxy's answers while its server starts."""
CHECK_SECONDS = 20.0


def check(conn_id: str, model: str | None = None) -> None:
    """Check the URL and key of a connection and its fallbacks, with a request for the list of models.

    Any HTTP answer except 401 and a redirect is accepted, since not every compatible server lists its models. After
    403, 502, 503 and 504, a call without a prompt follows. A provider's default URL isn't requested. If requests are
    translated, only the connection's fields are checked.

    Raises:
        ModelConnectionError: the URL redirects, the key is refused or malformed, or a field is invalid.
        ModelUnavailable: the server can't answer now; ModelUnreachable if nothing answers at the URL.
    """
    for connection in chain(conn_id, model):
        if is_translated(connection):
            model_of(connection)
            continue
        _check_key(connection)
        if connection.host:
            _check(connection, upstream_of(connection))


def check_harness(upstream: Upstream, harness: HarnessName) -> None:
    """Check that custom servers have the path that an agent CLI posts to, without calling a model.

    Raises:
        ModelConnectionError: a server doesn't have it.
        ModelUnreachable: nothing answers at the URL.
    """
    for server in (upstream, *upstream.fallbacks):
        if HARNESSES[harness].wire_format is not None and server.base_url not in ADDRESSES:
            _check_path(server, harness)


def _check_path(server: Upstream, harness: HarnessName) -> None:
    import httpx

    try:
        response = _request(server, calls_model=True)
    except httpx.HTTPError as error:
        raise ModelUnreachable(f"connection {server.conn_id}: no model server answers ({error})") from error
    if response.status_code in (404, 405):
        raise ModelConnectionError(
            f"connection {server.conn_id}: model.harness {harness} posts /v1/{server.wire_format.path}, and "
            f"{server.base_url} has no such path ({response.status_code}). Use harness chat or tools, or a connection "
            "to a server that has it"
        )


def _check_key(connection: ModelConnection) -> None:
    check_has_key(connection)
    key = connection.password.get_secret_value()
    if not (key.isascii() and key.isprintable()):
        raise connection.error(
            "its password holds a character that no HTTP header can carry, such as a line break. Enter the key again"
        )


def _check(connection: ModelConnection, upstream: Upstream) -> None:
    import httpx

    try:
        response = _request(upstream)
        if response.status_code in (403, *UNAVAILABLE_STATUSES):
            # The key may have no right to list the models, or the proxy no route to the list.
            response = _request(upstream, calls_model=True)
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        problem = connection.error(f"no model server answers at {connection.host} ({error}); correct its host")
        is_url = not isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol)
        raise ModelUnreachable(str(problem)) if is_url else problem from error
    except ModelConnectionError as error:
        raise connection.error(f"{error}; correct its azure_auth") from error
    if response.has_redirect_location:
        # The gateway doesn't follow redirects, since the key is for this server only. Other paths may still answer.
        target = response.url.join(response.headers["location"])
        if (target.scheme, target.netloc) != (response.url.scheme, response.url.netloc):
            url = str(target).removesuffix("/models").removesuffix(f"/{upstream.wire_format.path}")
            if upstream.wire_format.client_adds_version:
                url = url.removesuffix("/v1")
            raise connection.error(f"{connection.host} redirects to {url}; correct its host")
    if response.status_code in (401, 403):
        field = "password" if upstream.identity is None else "azure_auth, or the identity's role on the resource"
        raise connection.error(f"{connection.host} refuses the key ({response.status_code}); correct its {field}")
    if response.status_code in UNAVAILABLE_STATUSES:
        problem = connection.error(f"{connection.host} has no answer now ({response.status_code}); try again later")
        raise ModelUnavailable(str(problem))


def _request(upstream: Upstream, *, calls_model: bool = False) -> "httpx.Response":
    """Return the response to a call without a prompt, or to a request for the list of models."""
    import asyncio

    from skillopt_airflow.gateway.backends import HttpBackend

    async def send() -> "httpx.Response":
        async with aclosing(HttpBackend(upstream, CHECK_SECONDS)) as backend:
            empty = json.dumps({"model": upstream.model}).encode()
            response = await (backend.send(empty, {}) if calls_model else backend.list_models())
            await response.aclose()
            return response

    return asyncio.run(send())
