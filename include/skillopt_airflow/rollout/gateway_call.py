"""One HTTP request to the model gateway. A client library would cost several times what the call costs here."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

import h11

CHUNK = 64 * 1024


@dataclass(frozen=True)
class Answer:
    """An HTTP response; the names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def posted(gateway: str, path: str, body: bytes, timeout: float) -> Answer:
    """Post a JSON document and return the answer.

    Each request has its own connection: one costs less than a millisecond here, and none is found closed when a
    conversation goes on after minutes.

    Args:
        gateway: path of the gateway's unix socket, or its URL `http://host:port`.
        timeout: seconds that all of it may take.

    Raises:
        TimeoutError: it took longer.
        OSError: no whole answer came.
    """
    async with asyncio.timeout(timeout):
        reader, writer = await _connected(gateway)
        try:
            http = h11.Connection(h11.CLIENT)
            for event in (_request(gateway, path, len(body)), h11.Data(body), h11.EndOfMessage()):
                writer.write(http.send(event) or b"")
            await writer.drain()
            return await _answer(http, reader)
        except h11.RemoteProtocolError as error:
            raise ConnectionError(f"no whole HTTP answer: {error}") from error
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()


async def _connected(gateway: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if not gateway.startswith("http://"):
        return await asyncio.open_unix_connection(gateway)
    address = urlsplit(gateway)
    return await asyncio.open_connection(address.hostname, address.port or 80)


def _request(gateway: str, path: str, length: int) -> h11.Request:
    headers = {
        "host": urlsplit(gateway).netloc or "gateway",
        "accept": "application/json",
        "connection": "close",
        "content-type": "application/json",
        "content-length": str(length),
    }
    return h11.Request(method="POST", target=path, headers=[*headers.items()])


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
