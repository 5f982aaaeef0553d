"""One HTTP request to the model gateway, at a fraction of a client library's CPU time."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import h11

CHUNK = 64 * 1024


@dataclass(frozen=True)
class Answer:
    """An HTTP response, with header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def post(gateway: str, path: str, body: bytes, timeout: float) -> Answer:
    """Post a JSON document and return the answer. Raises TimeoutError after `timeout` seconds, or another OSError.

    Each request opens a connection, which takes less than a millisecond. An idle one could be closed in between.
    `gateway` is the path of the gateway's unix socket, or its URL `http://host:port`.
    """
    url = urlsplit(gateway)
    async with asyncio.timeout(timeout):
        if url.scheme == "http":
            reader, writer = await asyncio.open_connection(url.hostname, url.port or 80)
        else:
            reader, writer = await asyncio.open_unix_connection(gateway)
        try:
            http = h11.Connection(h11.CLIENT)
            headers = [
                ("host", url.netloc or "gateway"),
                ("accept", "application/json"),
                ("connection", "close"),
                ("content-type", "application/json"),
                ("content-length", str(len(body))),
            ]
            request = h11.Request(method="POST", target=path, headers=headers)
            for event in (request, h11.Data(body), h11.EndOfMessage()):
                writer.write(http.send(event) or b"")
            await writer.drain()
            return await _answer(http, reader)
        except h11.RemoteProtocolError as error:
            raise ConnectionError(f"no whole HTTP answer: {error}") from error
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def _answer(http: h11.Connection, reader: asyncio.StreamReader) -> Answer:
    status, headers, body = 0, dict[str, str](), bytearray()
    while not isinstance(event := http.next_event(), h11.EndOfMessage):
        if event is h11.NEED_DATA:
            http.receive_data(await reader.read(CHUNK))
        elif isinstance(event, h11.Response):
            status = event.status_code
            headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
        elif isinstance(event, h11.Data):
            body += event.data
    return Answer(status, headers, bytes(body))
