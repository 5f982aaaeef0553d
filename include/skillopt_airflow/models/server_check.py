"""The check, before a run, that the servers of a connection answer, know the key and have the path of a harness."""

import json
from contextlib import aclosing
from typing import TYPE_CHECKING

from skillopt_airflow.core.config.harnesses import HARNESSES, HarnessName
from skillopt_airflow.core.errors import ModelConnectionError, ModelUnavailable, ModelUnreachable
from skillopt_airflow.gateway.upstream import Upstream
from skillopt_airflow.models.connection import chain, is_translated, model_of, upstream_of
from skillopt_airflow.models.providers import ADDRESSES, Connected, check_has_key

if TYPE_CHECKING:
    import httpx

AWAY = (502, 503, 504)
"""What a proxy answers while the server behind it starts."""
CHECK_SECONDS = 20.0
JSON_CONTENT = {"content-type": "application/json"}


def check(conn_id: str, model: str | None = None) -> None:
    """Ask the servers of a connection and its fallbacks for their models, so that a wrong address or key shows early.

    Any HTTP answer but 401 and a redirect will do, since not every compatible server lists its models; after 403, 502,
    503 and 504 a call without a prompt tells. A provider's own address is not asked; of a provider whose requests are
    translated, only the connection's fields are looked at.

    Raises:
        ModelConnectionError: the address is none, or leads to another one; the key is refused or malformed; or a field
            is wrong.
        ModelUnavailable: the server has no answer now; ModelUnreachable if nothing answers at the address.
    """
    for connected in chain(conn_id, model):
        if is_translated(connected):
            model_of(connected)
            continue
        _check_key(connected)
        if connected.host:
            _check(connected, upstream_of(connected))


def check_harness(upstream: Upstream, harness: HarnessName) -> None:
    """Ask custom servers whether they have the path that an agent CLI posts to, without calling a model.

    Raises:
        ModelConnectionError: a server does not have it.
        ModelUnreachable: none answers there.
    """
    for server in (upstream, *upstream.fallbacks):
        if HARNESSES[harness].wire_format is not None and server.base_url not in ADDRESSES:
            _check_path(server, harness)


def _check_path(server: Upstream, harness: HarnessName) -> None:
    import httpx

    try:
        response = _once(server, _unprompted(server))
    except httpx.HTTPError as error:
        raise ModelUnreachable(f"connection {server.conn_id}: no model server answers ({error})") from error
    if response.status_code in (404, 405):
        raise ModelConnectionError(
            f"connection {server.conn_id}: model.harness {harness} posts /v1/{server.wire_format.path}, and "
            f"{server.base_url} has no such path ({response.status_code}); use harness chat or tools, or a connection "
            "to a server that has it"
        )


def _check_key(connected: Connected) -> None:
    check_has_key(connected)
    key = connected.password.get_secret_value()
    if not (key.isascii() and key.isprintable()):
        raise connected.error(
            "its password holds a character that no HTTP header can carry, such as a line break copied along; "
            "enter the key again"
        )


def _check(connected: Connected, upstream: Upstream) -> None:
    import httpx

    try:
        response = _once(upstream)
        if response.status_code in (403, *AWAY):
            # A key may lack the right to list the models, and a proxy the way to the list.
            response = _once(upstream, _unprompted(upstream))
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        said = connected.error(f"no model server answers at {connected.host} ({error}); correct its host")
        is_address = not isinstance(error, httpx.InvalidURL | httpx.UnsupportedProtocol)
        raise ModelUnreachable(str(said)) if is_address else said from error
    except ModelConnectionError as error:
        raise connected.error(f"{error}; correct its azure_auth") from error
    if response.has_redirect_location:
        # The gateway follows none: the key is for this server alone. Within it, other paths may still answer.
        elsewhere = response.url.join(response.headers["location"])
        if (elsewhere.scheme, elsewhere.netloc) != (response.url.scheme, response.url.netloc):
            address = str(elsewhere).removesuffix("/models").removesuffix(f"/{upstream.wire_format.path}")
            if upstream.wire_format.client_adds_version:
                address = address.removesuffix("/v1")
            raise connected.error(f"{connected.host} redirects to {address}; correct its host")
    if response.status_code in (401, 403):
        what = "password" if upstream.identity is None else "azure_auth, or the identity's role on the resource"
        raise connected.error(f"{connected.host} refuses the key ({response.status_code}); correct its {what}")
    if response.status_code in AWAY:
        said = connected.error(f"{connected.host} has no answer now ({response.status_code}); try again when it has")
        raise ModelUnavailable(str(said))


def _once(upstream: Upstream, body: bytes | None = None) -> "httpx.Response":
    """Return the response to one call or, without a body, to a request for the list of models."""
    import asyncio

    from skillopt_airflow.gateway.backends import HttpBackend

    async def asked() -> "httpx.Response":
        async with aclosing(HttpBackend(upstream, CHECK_SECONDS)) as backend:
            response = await (backend.list_models() if body is None else backend.send(body, JSON_CONTENT))
            await response.aclose()
            return response

    return asyncio.run(asked())


def _unprompted(server: Upstream) -> bytes:
    return json.dumps({"model": server.model}).encode()
