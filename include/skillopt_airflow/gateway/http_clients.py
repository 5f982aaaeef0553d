"""The HTTP clients of a model server: one a try."""

import ssl
from collections.abc import AsyncIterator, Callable
from functools import cache, partial
from typing import Any

import httpx

CONNECT_SECONDS = 10.0
"""Time for a connection: a host that takes longer is not there, and was asked nothing."""


UNPACKED = {"accept-encoding": "identity"}
"""Compressed, some kilobytes could become gigabytes before their size is known."""


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
