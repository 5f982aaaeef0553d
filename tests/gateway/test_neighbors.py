"""Sandboxes of one task at its gateway: code in one of them can't take the gateway from the others."""

import json
import resource
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

from skillopt_airflow.gateway import app as surface
from skillopt_airflow.gateway.model_gateway import SPARE_CONNECTIONS, ModelGateway
from tests.gateway.gateway_rig import MODEL, PATH, answer, upstream_at
from tests.gateway.scripted_provider import Asked, Reply, ScriptedProvider

pytestmark = pytest.mark.slow

MEGABYTE = 1024 * 1024
SECONDS = 5.0
"""A neighbor's call takes some milliseconds, and a busy machine may take its time; the attacks cost minutes."""


class Task:
    """A gateway with the sockets of two sandboxes, each of which has one item."""

    def __init__(self, folder: Path, provider: str, stack: ExitStack, **settings: Any) -> None:
        given = {"stage": "rollout", "max_attempts": 1, "call_timeout": 60.0} | settings
        gateway = stack.enter_context(ModelGateway(upstream_at(provider), on_call=lambda _: None, **given))
        self.attacker, self.neighbor = folder / "a.sock", folder / "b.sock"
        for path in (self.attacker, self.neighbor):
            stack.enter_context(gateway.listening(path, 1))
        self._stack = stack

    def connect(self, request: bytes = b"") -> socket.socket:
        """A connection of the attacker, which is open until the test ends."""
        raw = self._stack.enter_context(socket.socket(socket.AF_UNIX))
        raw.settimeout(30)
        raw.connect(str(self.attacker))
        raw.sendall(request)
        return raw

    def seconds(self, path: Path, length: int = 10) -> float:
        """The seconds that a call takes which is answered."""
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), timeout=60) as client:
            began = time.monotonic()
            content = {"model": MODEL, "messages": [{"role": "user", "content": "x" * length}]}
            assert client.post(f"http://gateway{PATH}", json=content).status_code == 200
            return time.monotonic() - began


@pytest.fixture
def task(tmp_path) -> Iterator[Task]:
    with ExitStack() as stack:
        provider = stack.enter_context(ScriptedProvider(answer))
        yield Task(tmp_path, provider.base_url, stack)


def head(length: int | None) -> bytes:
    size = "transfer-encoding: chunked" if length is None else f"content-length: {length}"
    return f"POST {PATH} HTTP/1.1\r\nhost: x\r\n{size}\r\n\r\n".encode()


@pytest.mark.parametrize("length", [None, surface.MAX_REQUEST_BYTES, 20 * MEGABYTE, 40_000])
def test_requests_that_never_end_take_no_room_of_a_neighbor(task, length):
    for _ in range(12):
        task.connect(head(length) + b"1\r\n{\r\n")
    assert task.seconds(task.neighbor) < SECONDS
    assert task.seconds(task.neighbor, 2 * MEGABYTE) < SECONDS
    # Not even of the sandbox's own small requests.
    assert task.seconds(task.attacker) < SECONDS


def test_silent_connections_are_limited_and_take_no_place_of_a_neighbor(task):
    silent = [task.connect() for _ in range(SPARE_CONNECTIONS + 2)]
    one_more = task.connect(head(2) + b"{}")
    assert one_more.recv(100).startswith(b"HTTP/1.1 503")
    one_more.close()
    assert task.seconds(task.neighbor) < SECONDS
    silent[0].close()
    silent[1].close()
    assert task.seconds(task.attacker) < SECONDS


@contextmanager
def again_and_again(task: Task, body: bytes, connections: int) -> Iterator[None]:
    """Many connections of the attacker that send a request as soon as the one before is refused."""
    ended = threading.Event()

    def send() -> None:
        while not ended.is_set():
            try:
                with socket.socket(socket.AF_UNIX) as raw:
                    raw.settimeout(60)
                    raw.connect(str(task.attacker))
                    raw.sendall(head(len(body)) + body)
                    raw.recv(100)
            except OSError:
                continue

    threads = [threading.Thread(target=send) for _ in range(connections)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()


COSTLY = {
    "unknown fields": b'{"model":"' + MODEL.encode() + b'","x":[' + b"[]," * 60_000 + b"[]]}",
    "of another model": b'{"model":"x","messages":[' + b"{}," * 60_000 + b"{}]}",
    "no JSON": b'{"model":[' + b"1," * 60_000,
    "small ones": b'{"model":"x","messages":[' + b"{}," * 7_000 + b"{}]}",
}


@pytest.mark.nightly
@pytest.mark.parametrize("body", COSTLY.values(), ids=COSTLY)
def test_requests_that_take_long_to_check_do_not_keep_a_neighbor_waiting(task, body):
    with again_and_again(task, body, 8):
        time.sleep(0.5)
        assert task.seconds(task.neighbor) < SECONDS
        assert task.seconds(task.neighbor, 100_000) < SECONDS


def test_a_neighbor_gets_its_turn_at_a_provider_that_is_kept_busy(tmp_path):
    """The calls of a sandbox wait for each other before those of the others wait for them."""

    def slow(asked: Asked) -> Reply:
        time.sleep(0.3)
        return answer(asked)

    with ExitStack() as stack:
        provider = stack.enter_context(ScriptedProvider(slow))
        task = Task(tmp_path, provider.base_url, stack, share=1)
        content = json.dumps({"model": MODEL}).encode()
        for _ in range(15):
            task.connect(head(len(content)) + content)
        assert task.seconds(task.neighbor) < 2.0


@pytest.mark.nightly
def test_large_requests_of_a_sandbox_take_a_bounded_memory(tmp_path):
    """The provider reads nothing, so the gateway holds each request that it has taken, and the connection's copy."""
    body = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "x" * (30 * MEGABYTE)}]}).encode()

    def send(raw: socket.socket) -> None:
        with suppress(OSError):
            raw.sendall(body)

    with socket.create_server(("127.0.0.1", 0)) as deaf, ExitStack() as stack:
        task = Task(tmp_path, f"http://127.0.0.1:{deaf.getsockname()[1]}/v1", stack)
        before = resident()
        connections = [task.connect(head(len(body))) for _ in range(12)]
        senders = [threading.Thread(target=send, args=(raw,)) for raw in connections]
        for sender in senders:
            sender.start()
        time.sleep(3)
        grown = resident() - before
        for raw, sender in zip(connections, senders, strict=True):
            raw.shutdown(socket.SHUT_RDWR)
            sender.join()
    assert grown < 4 * surface.MAX_HELD_BYTES / MEGABYTE


def resident() -> int:
    """The megabytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // MEGABYTE
