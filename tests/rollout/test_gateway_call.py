import asyncio
from pathlib import Path

import pytest

from skillopt_airflow.rollout.gateway_call import Answer, post

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
