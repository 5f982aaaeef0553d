import asyncio
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from skillopt_airflow.rollout.gateway_call import Answer, post
from skillopt_airflow.rollout.program import open_forwarder

BODY = b'{"text": "' + b"x" * 200_000 + b'"}'


def ask(folder: Path, answer: bytes, timeout: float = 20.0) -> tuple[Answer, list[bytes]]:
    """Post to a server on a unix socket that gives this answer and closes; return what came, and what it was sent."""
    sent: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        sent.extend([head, await reader.readexactly(len(BODY))])
        writer.write(answer)
        if not answer:
            await reader.read()
        writer.close()

    async def main() -> Answer:
        async with await asyncio.start_unix_server(serve, folder / "s"):
            return await post(str(folder / "s"), "/v1/x", BODY, timeout)

    return asyncio.run(main()), sent


def test_a_request_on_a_unix_socket(tmp_path: Path):
    said = b"HTTP/1.1 201 Very Good\r\nContent-Type: a/b; c\r\ncontent-length: 3\r\n\r\nyes"
    answer, (head, body) = ask(tmp_path, said)

    assert answer == Answer(201, {"content-type": "a/b; c", "content-length": "3"}, b"yes")
    assert head.startswith(b"POST /v1/x HTTP/1.1\r\nhost: gateway\r\n")
    assert b"\r\ncontent-length: %d\r\n" % len(BODY) in head
    assert body == BODY


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nyes\r\n2;a=b\r\n, \r\n0\r\n\r\n",
        b"HTTP/1.1 200\r\n\r\nyes, ",
    ],
)
def test_the_end_of_an_answer_is_found(tmp_path: Path, answer: bytes):
    assert ask(tmp_path, answer)[0].body == b"yes, "


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nyes",
        b"HTTP/1.1 200 OK\r\ncontent-length: many\r\n\r\nyes",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nyes\r\nzz",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nyes\r\n",
        b"x" * 100_000 + b"\r\n\r\n",
    ],
)
def test_half_an_answer_is_none(tmp_path: Path, answer: bytes):
    with pytest.raises(ConnectionError, match="no whole HTTP answer"):
        ask(tmp_path, answer)


def test_an_answer_that_does_not_come_in_time(tmp_path: Path):
    with pytest.raises(TimeoutError):
        ask(tmp_path, b"", timeout=0.2)


async def forward(base_url: str, text: bytes) -> bytes:
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
            return await asyncio.gather(*(forward(base_url, f"hello {n} ".encode() * 50_000) for n in range(5)))

    assert asyncio.run(main()) == [f"HELLO {n} ".encode() * 50_000 for n in range(5)]


def test_without_a_gateway_the_connection_just_closes(tmp_path: Path):
    async def main() -> bytes:
        async with open_forwarder(str(tmp_path / "none")) as base_url:
            return await forward(base_url, b"hello")

    assert asyncio.run(main()) == b""
