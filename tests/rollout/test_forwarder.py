import asyncio
from pathlib import Path
from urllib.parse import urlsplit

from skillopt_airflow.rollout.program import open_forwarder


async def ask(base_url: str, text: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(base_url).port)
    writer.write(text)
    writer.write_eof()
    try:
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


def test_bytes_pass_both_ways_and_several_at_once(tmp_path: Path):
    async def main() -> list[bytes]:
        async def shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write((await reader.read()).upper())
            await writer.drain()
            writer.close()

        async with (
            await asyncio.start_unix_server(shout, tmp_path / "s"),
            open_forwarder(str(tmp_path / "s")) as base_url,
        ):
            return await asyncio.gather(*(ask(base_url, f"hello {n} ".encode() * 50_000) for n in range(5)))

    assert asyncio.run(main()) == [f"HELLO {n} ".encode() * 50_000 for n in range(5)]


def test_without_a_gateway_the_connection_just_closes(tmp_path: Path):
    async def main() -> bytes:
        async with open_forwarder(str(tmp_path / "none")) as base_url:
            return await ask(base_url, b"hello")

    assert asyncio.run(main()) == b""
