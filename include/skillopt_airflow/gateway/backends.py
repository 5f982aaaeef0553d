"""A single try of a call to the model server behind an upstream: address, credentials and client."""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Callable, Mapping
from functools import cache, partial
from typing import Any, Protocol

import httpx
from pydantic import JsonValue
from pydantic_core import from_json, to_json

from skillopt_airflow.core.errors import ModelConnectionError
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.gateway.upstream import AzureIdentity, Upstream

UNPACKED = {"accept-encoding": "identity"}
"""Compressed, some kilobytes could become gigabytes before their size is known."""
CONNECT_SECONDS = 10.0
"""Time for a connection: a host that takes longer is not there, and was asked nothing."""


class HttpClients:
    """HTTP clients, each of which makes one request at a time.

    So a request costs the same however many others are under way: a client that makes them all looks at each of its
    connections several times a request.
    """

    def __init__(self, timeout: float) -> None:
        limits = httpx.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS))
        self._open = partial(httpx.AsyncClient, timeout=limits, verify=_trusted(), headers=UNPACKED)
        self._all: list[httpx.AsyncClient] = []
        self._idle: list[httpx.AsyncClient] = []

    async def send(self, method: str, url: httpx.URL | str, **request: Any) -> httpx.Response:
        """Return the response to a request, its body unread; it has to be closed.

        Raises:
            httpx.TransportError: none came.
            httpx.DecodingError: it is compressed.
        """
        client = self._idle.pop() if self._idle else self._another()
        try:
            response = await client.send(client.build_request(method, url, **request), stream=True)
        except BaseException:
            self._idle.append(client)
            raise
        response.stream = _Stream(response.stream, partial(self._idle.append, client))
        if not is_unpacked(response):
            await response.aclose()
            raise httpx.DecodingError("the answer is compressed, although the request forbids it")
        return response

    async def aclose(self) -> None:
        for client in self._all:
            await client.aclose()

    def _another(self) -> httpx.AsyncClient:
        client = self._open()
        self._all.append(client)
        return client


def is_unpacked(response: httpx.Response) -> bool:
    return response.headers.get("content-encoding", "identity").strip().lower() in ("", "identity")


class _Stream(httpx.AsyncByteStream):
    """A response's body; `on_close` is called when it is closed."""

    def __init__(self, stream: Any, on_close: Callable[[], None]) -> None:
        self._stream = stream
        self._on_close = on_close

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._stream:
            yield chunk

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            self._on_close()


@cache
def _trusted() -> ssl.SSLContext:
    """Return the certificates that servers are trusted by; reading them takes longer than a request."""
    return httpx.create_ssl_context()


class EntraToken:
    """The token of an identity, fetched when it is first needed and again shortly before it expires."""

    def __init__(self, identity: AzureIdentity) -> None:
        self._identity = identity
        self._source: Callable[[], str] | None = None
        self._one_at_a_time = asyncio.Lock()

    async def get(self) -> str:
        """Return the token without blocking the event loop.

        Raises:
            ModelConnectionError: the identity gives none.
        """
        async with self._one_at_a_time:
            return await asyncio.to_thread(self.fetch)

    def fetch(self) -> str:
        """Return the token.

        Raises:
            ModelConnectionError: the identity gives none.
        """
        from azure.core.exceptions import AzureError

        try:
            if self._source is None:
                self._source = _source(self._identity)
            return self._source()
        # A workload identity without a client id is a ValueError.
        except (AzureError, ValueError) as error:
            raise ModelConnectionError(f"no token for Azure: {error}") from error


def _source(identity: AzureIdentity) -> Callable[[], str]:
    """Return a function that caches the token and renews it some minutes before it expires."""
    from azure.identity import AzureCliCredential, ManagedIdentityCredential, get_bearer_token_provider

    if identity.kind == "cli":
        return get_bearer_token_provider(AzureCliCredential(), identity.scope)
    return get_bearer_token_provider(ManagedIdentityCredential(client_id=identity.client_id), identity.scope)


PASSED_HEADERS = ("accept", "anthropic-version")
BETA = re.compile(r"([a-z0-9-]+?)-\d{4}-?\d\d-?\d\d")
"""A name in the header anthropic-beta, and its date."""
OnToken = Callable[[str], None]


class Backend(Protocol):
    async def send(self, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
        """Make one try of a call; the body of the answer is still unread.

        Args:
            body: a request in the upstream's wire format.
            headers: the client's; only a few are passed on, none of them a credential.

        Raises:
            httpx.TransportError: no answer.
            TimeoutError: none in time.
        """

    async def aclose(self) -> None: ...


def handed_over(upstream: Upstream) -> JsonObject:
    """Return the upstream, with its secrets, for a gateway in another process; write it to a pipe and nowhere else.

    An Azure identity belongs to this machine, so its token goes along instead; it is good for about an hour.

    Raises:
        ModelConnectionError: the identity gives no token.
    """
    return _with_tokens(upstream).revealed()


def unheard(token: str) -> None: ...


class HttpBackend:
    """A server that speaks the wire format itself."""

    def __init__(self, upstream: Upstream, timeout: float, on_token: OnToken = unheard) -> None:
        self._upstream = upstream
        self._on_token = on_token
        self._token = None if upstream.identity is None else EntraToken(upstream.identity)
        self._clients = HttpClients(timeout)
        self._url = _url(upstream)

    async def send(self, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
        wire_format = self._upstream.wire_format
        passed = {name: headers[name] for name in PASSED_HEADERS if name in headers}
        asked = (name.strip() for name in headers.get("anthropic-beta", "").split(","))
        if betas := [name for name in asked if (beta := BETA.fullmatch(name)) and beta[1] in wire_format.betas]:
            passed["anthropic-beta"] = ",".join(betas)
        try:
            credentials = await self._credentials()
        except ModelConnectionError as error:
            # What gives tokens may have none for a moment; an identity that is missing is found before a run begins.
            return problem(502, f"connection {self._upstream.conn_id}: {error}")
        return await self._clients.send(
            "POST",
            self._url,
            content=_renamed(self._upstream, body),
            headers={"content-type": "application/json", **wire_format.headers, **passed, **credentials},
        )

    async def list_models(self) -> httpx.Response:
        """Return the server's list of models, which is free but needs the credentials.

        Raises:
            httpx.TransportError: no answer.
            ModelConnectionError: the identity gives no token.
        """
        url = f"{self._upstream.base_url.rstrip('/')}/models"
        headers = {**self._upstream.wire_format.headers, **await self._credentials()}
        response = await self._clients.send("GET", url, params=self._upstream.query, headers=headers)
        await response.aread()
        return response

    async def aclose(self) -> None:
        await self._clients.aclose()

    async def _credentials(self) -> dict[str, str]:
        if self._token is not None:
            token = await self._token.get()
            self._on_token(token)
            return {"authorization": f"Bearer {token}"}
        key = self._upstream.api_key.get_secret_value()
        # A server without keys is legal, an empty bearer token is not.
        if not key:
            return {}
        return {"authorization": f"Bearer {key}"} if self._upstream.auth == "bearer" else {self._upstream.auth: key}


def _url(upstream: Upstream) -> httpx.URL:
    wire_format = upstream.wire_format
    deployed = upstream.deployments and wire_format.below_deployment
    path = f"deployments/{upstream.model}/{wire_format.path}" if deployed else wire_format.path
    url = httpx.URL(f"{upstream.base_url.rstrip('/')}/{path}")
    return url.copy_merge_params(upstream.query) if upstream.query else url


def problem(status: int, message: str, code: str | None = None, **told: JsonValue) -> httpx.Response:
    error = {"message": message, "type": "model_connection", "code": status if code is None else code}
    return httpx.Response(status, json={"error": error, **told})


def _renamed(upstream: Upstream, body: bytes) -> bytes:
    """Return the request with the upstream's names of the model, which may differ for a fallback, and of the limit."""
    if body.startswith(b'{"model":%s,' % to_json(upstream.model)) and not upstream.takes_max_tokens:
        return body
    own = from_json(body) | {"model": upstream.model}
    if upstream.takes_max_tokens and "max_completion_tokens" in own:
        own["max_tokens"] = own.pop("max_completion_tokens")
    return to_json(own)


def _with_tokens(upstream: Upstream) -> Upstream:
    fallbacks = tuple(_with_tokens(fallback) for fallback in upstream.fallbacks)
    if upstream.identity is None:
        return upstream.model_copy(update={"fallbacks": fallbacks})
    try:
        token = EntraToken(upstream.identity).fetch()
    except ModelConnectionError as error:
        raise ModelConnectionError(f"connection {upstream.conn_id}: {error}") from error
    # Validated anew: a copy with an update would keep the token as plain text.
    return Upstream.model_validate(
        {name: getattr(upstream, name) for name in Upstream.model_fields}
        | {"identity": None, "api_key": token, "auth": "bearer", "fallbacks": fallbacks}
    )
