"""Docker's client attached to a server that sends frames as engines do, together with other bytes and over TLS."""

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
import pytest
from docker.tls import TLSConfig

from skillopt_airflow.sandbox.docker_output import HEADER, attached
from tests.certificates import certificate

UPGRADED = b"HTTP/1.1 101 UPGRADED\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n\r\n"


def frame(number: int, text: bytes) -> bytes:
    return HEADER.pack(number, len(text)) + text


@contextmanager
def engine(sent: list[bytes], done: threading.Event, context: ssl.SSLContext | None = None) -> Iterator[str]:
    """A server that answers one request with these bytes, a packet each, and keeps the connection until `done`."""

    def serve() -> None:
        connection, _ = listening.accept()
        if context is not None:
            connection = context.wrap_socket(connection, server_side=True)
        with connection:
            asked = b""
            while not asked.endswith(b"}"):
                asked += connection.recv(4096)
            for packet in sent:
                connection.sendall(packet)
            if not done.wait(10):
                connection.sendall(frame(2, b"nobody has read it"))

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            done.set()
            thread.join()


def read(client: docker.APIClient, done: threading.Event, count: int) -> list[tuple[int, bytes]]:
    """All frames; the connection is closed when so many have come."""
    found = []
    with attached(client.exec_start("id", stream=True)) as frames:
        for one in frames:
            found.append(one)
            if len(found) == count:
                done.set()
    client.close()
    return found


def test_a_frame_that_comes_with_the_answers_headers_is_not_lost() -> None:
    done = threading.Event()
    with engine([UPGRADED + frame(1, b"first\n"), frame(2, b"second\n")], done) as address:
        client = docker.APIClient(base_url=f"tcp://{address}", version="1.41", timeout=5)
        assert read(client, done, 2) == [(1, b"first\n"), (2, b"second\n")]


def test_over_tls_no_frame_waits_for_the_next_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):
        # The library of Docker's client prefers them to the client's own authority.
        monkeypatch.delenv(name, raising=False)
    done, file = threading.Event(), certificate(tmp_path, "localhost")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    # One record holds two frames, and after them the engine has nothing to say.
    with engine([UPGRADED, frame(1, b"listening") + frame(1, b"\n")], done, context) as address:
        client = docker.APIClient(
            base_url=f"https://localhost:{address.rpartition(':')[2]}",
            version="1.41",
            tls=TLSConfig(ca_cert=str(file), verify=True),
            timeout=5,
        )
        assert read(client, done, 2) == [(1, b"listening"), (1, b"\n")]


def test_output_that_breaks_off_within_a_frame_ends_there() -> None:
    done = threading.Event()
    done.set()
    with engine([UPGRADED + frame(1, b"whole"), frame(1, b"broken off")[:12]], done) as address:
        client = docker.APIClient(base_url=f"tcp://{address}", version="1.41", timeout=5)
        assert read(client, done, 9) == [(1, b"whole"), (1, b"brok")]
