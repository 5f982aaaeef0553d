"""Clients that hang, die or send garbage don't disturb other sandboxes; they speak through raw sockets."""

import resource
import socket
import struct
import threading
import time
from http.client import HTTPResponse

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.gateway import app as surface
from skillopt_airflow.gateway.model_gateway import listen
from tests.gateway.gateway_rig import PATH, Hanging, answer, request_bytes, rigs
from tests.gateway.scripted_provider import Asked, Reply, events

pytestmark = pytest.mark.slow


def is_cut_off(raw: socket.socket) -> bool:
    """Read what comes until the other side ends it; fails after the socket's time."""
    try:
        while raw.recv(65536):
            pass
    except ConnectionResetError:
        pass
    return True


def reset(raw: socket.socket) -> None:
    """Die as a killed process does."""
    raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    raw.close()


HEAD = f"POST {PATH} HTTP/1.1\r\nhost: gateway\r\n"
SLOW = {
    "nothing": b"",
    "half a head": HEAD.encode(),
    "half a body": HEAD.encode() + b'content-length: 100\r\n\r\n{"model": ',
    "an endless body": HEAD.encode() + b"transfer-encoding: chunked\r\n\r\n2\r\n{}\r\n",
}


@pytest.mark.parametrize("sent", list(SLOW.values())[-2:], ids=list(SLOW)[-2:])
def test_a_body_that_does_not_end_is_refused(rig, monkeypatch, sent):
    monkeypatch.setattr(surface, "REQUEST_SECONDS", 0.3)
    one = rig(answer)
    with one.connect() as raw:
        raw.sendall(sent)
        assert one.post().status_code == 200
        assert raw.recv(65536).startswith(b"HTTP/1.1 408")
    assert len(one.provider.requests) == 1


def test_a_connection_between_two_requests_may_rest(rig):
    one = rig(answer)
    with one.connect() as raw:
        for seconds in (0.0, 1.2):
            time.sleep(seconds)
            raw.sendall(request_bytes())
            response = HTTPResponse(raw)
            response.begin()
            assert (response.status, bool(response.read())) == (200, True)


@pytest.mark.parametrize("sent", SLOW.values(), ids=SLOW)
def test_a_client_that_dies_while_it_sends_disturbs_nobody(rig, sent, caplog):
    one = rig(answer)
    raw = one.connect()
    raw.sendall(sent)
    reset(raw)
    assert one.post().status_code == 200
    assert len(one.provider.requests) == 1
    assert "Traceback" not in caplog.text


def test_a_client_that_dies_while_it_waits_is_not_asked_for_again(rig):
    first_hangs = Hanging(lambda asked: asked.number == 1)
    one = rig(first_hangs, call_timeout=20.0)
    raw = one.connect()
    raw.sendall(request_bytes())
    assert first_hangs.asked.wait(30)
    reset(raw)

    assert one.post().status_code == 200
    first_hangs.release()
    # The call went out, so it counts, though nobody knows what it cost.
    assert sorted(one.outcomes()) == [(0, 1), (200, 1)]


def test_a_client_that_dies_within_a_stream_ends_it(rig):
    going_on, release = threading.Event(), threading.Event()

    def endless(asked: Asked) -> Reply:
        def chunks():
            yield from events({"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 1}})
            for _ in range(2000):
                if release.wait(0.01):
                    return
                yield from events({"choices": []})
            going_on.set()

        if asked.number > 1:
            return answer(asked)
        return Reply(headers={"content-type": "text/event-stream"}, chunks=chunks())

    one = rig(endless, call_timeout=30.0)
    raw = one.connect()
    raw.sendall(request_bytes(stream=True))
    assert b"200 OK" in raw.recv(65536)
    reset(raw)

    assert one.post().status_code == 200
    one.until_called(2)
    release.set()
    assert not going_on.is_set()
    assert sorted((call.prompt_tokens, call.completion_tokens) for call in one.calls) == [(7, 1), (11, 3)]


def test_a_client_that_does_not_read_a_stream_leaves_its_place_to_another(rig):
    """The place in the rate limit is one of all sandboxes of the task."""
    text = {"choices": [{"index": 0, "delta": {"content": "x" * 60_000}}]}

    def endless(asked: Asked) -> Reply:
        if asked.number > 1:
            return answer(asked)
        return Reply(
            headers={"content-type": "text/event-stream"}, chunks=(one for _ in range(400) for one in events(text))
        )

    one = rig(endless, share=1, call_timeout=1.0, max_attempts=3)
    with one.connect() as raw:
        raw.sendall(request_bytes(stream=True))
        assert b"200 OK" in raw.recv(100)
        assert one.post().status_code == 200


@pytest.mark.nightly
def test_more_calls_at_once_than_anybody_has_slots_for(rig):
    """A batch whose calls all begin at once fills the queue of connections before the first is taken from it."""
    # A call takes two files, and a user's limit of 1,024 also holds those of the client and the provider.
    calls = 200 if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 2048 else 400
    one = rig(answer, max_concurrency=calls, share=calls, call_timeout=60.0)
    waiting = [one.connect() for _ in range(calls)]
    for raw in waiting:
        raw.sendall(request_bytes())
    for raw in waiting:
        assert raw.recv(100).startswith(b"HTTP/1.1 200")
        raw.close()


def test_a_head_over_its_size_is_refused(rig):
    one = rig(answer)
    with one.connect() as raw:
        raw.sendall(HEAD.encode() + b"x-long: " + b"x" * 100_000)
        assert raw.recv(65536).startswith(b"HTTP/1.1 400")
        assert is_cut_off(raw)
    assert one.post().status_code == 200


GARBAGE = [
    b"\x00\xff\xfe" * 100,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    HEAD.encode() + b"content-length: -1\r\n\r\n",
    HEAD.encode() + b"content-length: 5\r\ncontent-length: 6\r\n\r\n{}",
    HEAD.encode() + b"content-length: 2\r\ntransfer-encoding: chunked\r\n\r\n{}",
    HEAD.encode() + b"transfer-encoding: chunked\r\n\r\nzz\r\n{}\r\n",
    HEAD.encode() + b"transfer-encoding: gzip\r\n\r\n{}",
    HEAD.encode() + b"upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-key: x\r\n\r\n",
    HEAD.encode() + b"bad header\r\n\r\n",
    request_bytes("/v1/files") + b"\x00\r\n\r\n",
    b"CONNECT 127.0.0.1:9 HTTP/1.1\r\nhost: 127.0.0.1:9\r\n\r\n",
    b"POST http://127.0.0.1:9/v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:9\r\ncontent-length: 0\r\n\r\n",
]


@pytest.mark.parametrize("sent", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_is_refused_and_disturbs_nobody(rig, monkeypatch, sent):
    monkeypatch.setattr(surface, "REQUEST_SECONDS", 0.3)
    one = rig(answer)
    with one.connect() as raw:
        raw.sendall(sent)
        raw.shutdown(socket.SHUT_WR)
        assert raw.recv(65536)[9:10] in (b"", b"4")
    assert one.post().status_code == 200


@pytest.fixture(scope="module")
def hardy(tmp_path_factory):
    """One gateway that outlives all examples."""
    with rigs(tmp_path_factory.mktemp("hardy")) as make:
        yield make(answer)


PIECES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"\r\n", b"\r\n\r\n", HEAD.encode(), b"content-length: 10\r\n", request_bytes(), *GARBAGE]),
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(PIECES, max_size=6), st.booleans())
def test_whatever_a_client_sends_the_next_is_served(hardy, pieces, dies):
    raw = hardy.connect()
    try:
        for piece in pieces:
            raw.sendall(piece)
    except OSError:
        pass  # cut off by then
    if dies:
        reset(raw)
    raw.close()
    assert hardy.post().status_code == 200


def test_a_socket_that_a_killed_gateway_left_is_replaced_and_another_file_is_not(tmp_path):
    path = tmp_path / "model.sock"
    for _ in range(2):
        listen(path).close()
        assert path.exists()
    path.unlink()
    path.write_text("no socket")
    with pytest.raises(SandboxError, match="cannot listen at"):
        listen(path)
    assert path.read_text() == "no socket"
