"""The connection to a model server: URL, credentials and HTTP client."""

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
"""Requests uncompressed answers, because a few compressed kilobytes could become gigabytes."""
CONNECT_SECONDS = 10.0
"""Timeout for a connection. It counts as unreachable, not as a slow answer."""


class HttpClients:
    """A pool of HTTP clients, each of which makes one request at a time.

    A single client would scan all of its connections several times per request.
    """

    def __init__(self, timeout: float) -> None:
        limits = httpx.Timeout(timeout, connect=min(timeout, CONNECT_SECONDS))
        self._open = partial(httpx.AsyncClient, timeout=limits, verify=trusted(), headers=UNPACKED)
        self._all: list[httpx.AsyncClient] = []
        self._idle: list[httpx.AsyncClient] = []

    async def send(self, method: str, url: httpx.URL | str, **request: Any) -> httpx.Response:
        """Return the response to a request, with an unread body. The caller has to close it.

        Raises:
            httpx.TransportError: no response.
            httpx.DecodingError: the response is compressed.
        """
        if self._idle:
            client = self._idle.pop()
        else:
            client = self._open()
            self._all.append(client)
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


def is_unpacked(response: httpx.Response) -> bool:
    return response.headers.get("content-encoding", "identity").strip().lower() in ("", "identity")


class _Stream(httpx.AsyncByteStream):
    """A response's body that calls `on_close` when it is closed."""

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
def trusted() -> ssl.SSLContext:
    """Return the trusted certificates. Cached, because reading them takes longer than a request."""
    return httpx.create_ssl_context()


class EntraToken:
    """An identity's token, fetched on first use and renewed shortly before it expires."""

    def __init__(self, identity: AzureIdentity) -> None:
        self._identity = identity
        self._source: Callable[[], str] | None = None
        self._one_at_a_time = asyncio.Lock()

    async def get(self) -> str:
        """Like `fetch`, without blocking the event loop."""
        async with self._one_at_a_time:
            return await asyncio.to_thread(self.fetch)

    def fetch(self) -> str:
        """Return the token. Raises ModelConnectionError if the identity has none."""
        from azure.core.exceptions import AzureError
        from azure.identity import AzureCliCredential, ManagedIdentityCredential, get_bearer_token_provider

        try:
            if self._source is None:
                uses_cli, client_id = self._identity.kind == "cli", self._identity.client_id
                credential = AzureCliCredential() if uses_cli else ManagedIdentityCredential(client_id=client_id)
                self._source = get_bearer_token_provider(credential, self._identity.scope)
            return self._source()
        # A workload identity without a client ID raises ValueError.
        except (AzureError, ValueError) as error:
            raise ModelConnectionError(f"no token for Azure: {error}") from error


PASSED_HEADERS = ("accept", "anthropic-version")
BETA = re.compile(r"([a-z0-9-]+?)-\d{4}-?\d\d-?\d\d")
"""A feature's name and date in the header anthropic-beta."""
OnToken = Callable[[str], None]


class Backend(Protocol):
    async def send(self, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
        """Send a request in the upstream's wire format, and return the answer with an unread body.

        Only a few of the client's headers are forwarded, and no credentials.

        Raises:
            httpx.TransportError: no answer.
            TimeoutError: no answer in time.
        """

    async def aclose(self) -> None: ...


def export_upstream(upstream: Upstream) -> JsonObject:
    """Return the upstream with its secrets, for a gateway in another process. Write it only to a pipe.

    An Azure identity belongs to this machine, so the document has its token instead, which lasts about an hour.
    Raises ModelConnectionError if the identity has none.
    """
    return _with_tokens(upstream).dump_with_secrets()


def ignore_token(token: str) -> None: ...


class HttpBackend:
    """A server that uses the wire format itself."""

    def __init__(self, upstream: Upstream, timeout: float, on_token: OnToken = ignore_token) -> None:
        self._upstream = upstream
        self._on_token = on_token
        self._token = None if upstream.identity is None else EntraToken(upstream.identity)
        self._clients = HttpClients(timeout)
        self._url = _url(upstream)

    async def send(self, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
        wire_format = self._upstream.wire_format
        passed = {name: headers[name] for name in PASSED_HEADERS if name in headers}
        names = (name.strip() for name in headers.get("anthropic-beta", "").split(","))
        if betas := [name for name in names if (beta := BETA.fullmatch(name)) and beta[1] in wire_format.betas]:
            passed["anthropic-beta"] = ",".join(betas)
        try:
            credentials = await self._credentials()
        except ModelConnectionError as error:
            # The token endpoint may fail briefly; a missing identity is caught before the run.
            return error_response(502, f"connection {self._upstream.conn_id}: {error}")
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
            ModelConnectionError: the identity has no token.
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
        # An empty bearer token would be invalid.
        if not key:
            return {}
        return {"authorization": f"Bearer {key}"} if self._upstream.auth == "bearer" else {self._upstream.auth: key}


def _url(upstream: Upstream) -> httpx.URL:
    wire_format = upstream.wire_format
    deployed = upstream.deployments and wire_format.below_deployment
    path = f"deployments/{upstream.model}/{wire_format.path}" if deployed else wire_format.path
    url = httpx.URL(f"{upstream.base_url.rstrip('/')}/{path}")
    return url.copy_merge_params(upstream.query) if upstream.query else url


def error_response(status: int, message: str, code: str | None = None, **fields: JsonValue) -> httpx.Response:
    error = {"message": message, "type": "model_connection", "code": status if code is None else code}
    return httpx.Response(status, json={"error": error, **fields})


def _renamed(upstream: Upstream, body: bytes) -> bytes:
    """Return the request with the upstream's names for the model and the token limit. A fallback may use others."""
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
    # `model_copy` doesn't validate, and would keep the token as plain text.
    return Upstream.model_validate(
        {name: getattr(upstream, name) for name in Upstream.model_fields}
        | {"identity": None, "api_key": token, "auth": "bearer", "fallbacks": fallbacks}
    )
