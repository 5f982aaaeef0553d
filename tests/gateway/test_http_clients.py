import asyncio
import gzip
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
import pytest

from skillopt_airflow.gateway.backends import HttpClients


class Counted:
    """Answers every request when as many as `together` are there, and counts its connections."""

    def __init__(self) -> None:
        self.connections = 0
        self._open = 0
        self.together = asyncio.Barrier(1)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._open += 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                await self.together.wait()
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        except (asyncio.IncompleteReadError, asyncio.BrokenBarrierError):
            pass
        finally:
            writer.close()
            await writer.wait_closed()
            self._open -= 1

    async def gone(self) -> None:
        while self._open:
            await asyncio.sleep(0.01)


@asynccontextmanager
async def counted() -> AsyncIterator[tuple[Counted, str]]:
    one = Counted()
    async with await asyncio.start_server(one.answer, "127.0.0.1", 0) as server:
        yield one, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"


async def get(clients: HttpClients, url: str) -> bytes:
    response = await clients.send("GET", url)
    try:
        return await response.aread()
    finally:
        await response.aclose()


def test_requests_at_the_same_time_have_a_connection_each_and_the_next_use_them_again():
    async def scene() -> None:
        clients = HttpClients(5.0)
        async with counted() as (server, url):
            for together in (1, 3, 1, 3, 2):
                server.together = asyncio.Barrier(together)
                answers = await asyncio.gather(*(get(clients, url) for _ in range(together)))
                assert answers == [b"ok"] * together
            assert server.connections == 3
            await clients.aclose()
            await server.gone()

    asyncio.run(scene())


def test_after_a_request_that_failed_or_was_given_up_the_next_succeeds():
    async def scene() -> None:
        clients = HttpClients(5.0)
        with pytest.raises(httpx.ConnectError):
            await get(clients, "http://127.0.0.1:9/")
        async with counted() as (server, url):
            server.together = asyncio.Barrier(2)
            given_up = asyncio.ensure_future(get(clients, url))
            while not server.together.n_waiting:
                await asyncio.sleep(0.01)
            given_up.cancel()
            await asyncio.gather(given_up, return_exceptions=True)
            await server.together.abort()
            server.together = asyncio.Barrier(1)
            assert await get(clients, url) == b"ok"
            assert server.connections == 2
            await clients.aclose()
            await server.gone()

    asyncio.run(scene())


@pytest.mark.parametrize("encoding", ["gzip", "gzip, gzip", "br", "GZIP", "zstd", "x", "identity, gzip"])
def test_a_compressed_answer_is_refused_before_it_is_unpacked(encoding):
    asked = []

    async def pack(reader, writer):
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        body = gzip.compress(bytes(2**20))
        writer.write(f"HTTP/1.1 200 OK\r\ncontent-encoding: {encoding}\r\ncontent-length: {len(body)}\r\n\r\n".encode())
        writer.write(body)
        writer.close()

    async def main():
        server = await asyncio.start_server(pack, "127.0.0.1", 0)
        clients = HttpClients(5.0)
        try:
            url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
            with pytest.raises(httpx.DecodingError, match="compressed"):
                await clients.send("GET", url)
        finally:
            await clients.aclose()
            server.close()

    asyncio.run(main())
    assert b"accept-encoding: identity" in asked[0].lower()
