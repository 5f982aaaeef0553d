"""A TCP port on 127.0.0.1 in front of the gateway's unix socket, so that any client works unchanged."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

CHUNK_BYTES = 65536


@asynccontextmanager
async def forwarded(socket_path: Path) -> AsyncIterator[str]:
    """The address `http://127.0.0.1:<port>`, which leads to the socket as long as the block runs."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            gateway_reader, gateway_writer = await asyncio.open_unix_connection(socket_path)
        except OSError:
            writer.close()
            return
        try:
            await asyncio.gather(_pipe(reader, gateway_writer), _pipe(gateway_reader, writer))
        finally:
            writer.close()
            gateway_writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        server.close()


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy until the reader ends; the other direction may still have something to say."""
    with suppress(OSError):
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()
