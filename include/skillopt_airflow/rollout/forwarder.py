"""A TCP port on 127.0.0.1 that forwards to the gateway's unix socket, so that any client can use it."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

CHUNK_BYTES = 65536


@asynccontextmanager
async def forwarded(gateway: str) -> AsyncIterator[str]:
    """Yield an address such as `http://127.0.0.1:<port>` that leads to the gateway while the block runs.

    Args:
        gateway: path of a unix socket, or an address `http://host:port`, which is taken as it is.
    """
    if gateway.startswith("http://"):
        yield gateway.rstrip("/")
        return

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            gateway_reader, gateway_writer = await asyncio.open_unix_connection(gateway)
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
    """Copy until the reader ends; the other direction may still be open."""
    with suppress(OSError):
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
        writer.write_eof()
