"""One HTTP request to the model gateway, by asyncio alone: importing a client library costs more than many calls."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Answer:
    """An HTTP response; the names of its headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


async def posted(gateway: str, path: str, body: bytes, timeout: float) -> Answer:
    """Post a JSON document and return the answer.

    Each request has a connection of its own: one costs less than a millisecond here, and none is found closed when a
    conversation goes on after minutes.

    Args:
        gateway: path of the gateway's unix socket, or its address `http://host:port`.
        path: where on it.
        body: the document.
        timeout: seconds that all of it may take.

    Raises:
        TimeoutError: it took longer.
        OSError: no whole answer came.
    """
    async with asyncio.timeout(timeout):
        reader, writer = await _connected(gateway)
        try:
            writer.write(_head(gateway, path, len(body)) + body)
            await writer.drain()
            return await _read(reader)
        except (EOFError, ValueError, asyncio.LimitOverrunError) as error:
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


def _head(gateway: str, path: str, length: int) -> bytes:
    host = urlsplit(gateway).netloc or "gateway"
    lines = (
        f"POST {path} HTTP/1.1",
        f"host: {host}",
        "accept: application/json",
        "connection: close",
        "content-type: application/json",
        f"content-length: {length}",
    )
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode("latin-1")


async def _read(reader: asyncio.StreamReader) -> Answer:
    first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").rstrip("\r\n").split("\r\n")
    _, status, *_ = first.split(" ")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if "chunked" in headers.get("transfer-encoding", ""):
        body = b"".join([chunk async for chunk in _chunks(reader)])
    elif "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
    else:
        body = await reader.read()
    return Answer(int(status), headers, body)


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while size := int((await reader.readline()).partition(b";")[0], 16):
        yield await reader.readexactly(size)
        await reader.readline()
