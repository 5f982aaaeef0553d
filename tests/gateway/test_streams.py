"""Answers that come as server-sent events."""

import threading
import time

import httpx
import pytest

from skillopt_airflow.gateway import app as surface
from skillopt_airflow.gateway.remaining_budget import RemainingBudget
from tests.gateway.gateway_rig import KEY, MODEL, PATH, PATHS, upstream_at
from tests.gateway.scripted_provider import Asked, Reply, completion, events

SSE = {"content-type": "text/event-stream; charset=utf-8"}
STREAMS = {
    "openai-chat": [
        {"choices": [{"delta": {"content": "Eif"}}]},
        {"choices": [{"delta": {"content": "fel"}}]},
        {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}},
    ],
    "openai": [
        {"type": "response.created", "response": {"usage": None}},
        {"type": "response.output_text.delta", "delta": "Eiffel"},
        {"type": "response.completed", "response": {"usage": {"input_tokens": 7, "output_tokens": 2}}},
    ],
    "anthropic": [
        {"type": "message_start", "message": {"usage": {"input_tokens": 5, "cache_read_input_tokens": 2}}},
        {"type": "content_block_delta", "delta": {"text": "Eiffel"}},
        {"type": "message_delta", "usage": {"output_tokens": 2}},
    ],
}


@pytest.mark.parametrize("dialect", sorted(STREAMS))
def test_a_stream_passes_through_and_its_usage_counts(rig, dialect):
    chunks = events(*STREAMS[dialect])
    one = rig(lambda asked: Reply(headers=SSE, chunks=chunks), dialect=dialect)

    response = one.post(PATHS[dialect], stream=True)

    assert response.content == b"".join(chunks)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert [(call.http_status, call.prompt_tokens, call.completion_tokens) for call in one.calls] == [(200, 7, 2)]


def test_the_keys_are_in_no_stream_and_its_usage_counts(rig):
    other = f"{KEY}-other"
    chunks = events({"choices": [{"delta": {"content": f"{KEY} {other} {KEY[:9]}"}}]}, STREAMS["openai-chat"][2])
    headers = {"content-type": f"text/event-stream; x={KEY}"}
    fallback = upstream_at("http://127.0.0.1:9/v1", api_key=other)
    one = rig(lambda asked: Reply(headers=headers, chunks=chunks), upstream={"fallbacks": (fallback,)})

    response = one.post(stream=True)

    assert response.content == b"".join(chunks).replace(other.encode(), b"***").replace(KEY.encode(), b"***")
    assert response.headers["content-type"].startswith("text/event-stream; x=***")
    assert [(call.prompt_tokens, call.completion_tokens) for call in one.calls] == [(7, 2)]


def test_every_chunk_comes_as_soon_as_the_server_sends_it(rig):
    go_on = [threading.Event() for _ in range(3)]

    def step_by_step(asked: Asked) -> Reply:
        def chunks():
            for chunk, event in zip(events(*STREAMS["openai-chat"]), go_on, strict=True):
                yield chunk
                event.wait(30)

        return Reply(headers=SSE, chunks=chunks())

    one = rig(step_by_step)
    with one.client.stream("POST", PATH, json={"model": MODEL, "stream": True}) as response:
        for chunk, event in zip(response.iter_bytes(), go_on, strict=True):
            # The server sends the next only when this one was seen here.
            assert chunk.startswith(b"data:")
            event.set()


def broken_off(one) -> bytes:
    """What came of a stream that does not end as it should."""
    got = b""
    with one.client.stream("POST", PATH, json={"model": MODEL, "stream": True}) as response:
        chunks = response.iter_bytes()
        while True:
            try:
                got += next(chunks)
            except httpx.RemoteProtocolError:
                return got


def test_a_stream_that_the_server_breaks_off_is_broken_off_here(rig):
    chunks = events(*STREAMS["openai-chat"])[::-1]
    one = rig(
        lambda asked: Reply(headers=SSE, chunks=chunks, broken=b"zz\r\n") if asked.number == 1 else completion("x")
    )

    assert broken_off(one) == b"".join(chunks)
    assert one.post().status_code == 200
    assert [(call.prompt_tokens, call.completion_tokens, call.attempts) for call in one.calls] == [
        (7, 2, 1),
        (11, 3, 1),
    ]


def test_a_stream_that_stands_still_is_broken_off_in_time(rig):
    release = threading.Event()

    def stands_still(asked: Asked) -> Reply:
        def chunks():
            yield from events({"choices": []})
            release.wait(30)

        return Reply(headers=SSE, chunks=chunks()) if asked.number == 1 else completion("x")

    one = rig(stands_still, call_timeout=0.5)
    assert broken_off(one) == events({"choices": []})[0]
    assert one.post().status_code == 200
    release.set()


def test_a_stream_over_its_size_is_cut_and_counted(rig, monkeypatch):
    monkeypatch.setattr(surface, "MAX_ANSWER_BYTES", 5000)
    usage = {"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 2}}
    long = events(usage, *({"choices": [{"delta": {"content": "x" * 100}}]} for _ in range(100)))

    def slowly():
        for chunk in long:
            time.sleep(0.001)
            yield chunk

    one = rig(lambda asked: Reply(headers=SSE, chunks=slowly()))
    assert 0 < len(broken_off(one)) <= 5000
    assert [(call.prompt_tokens, call.completion_tokens) for call in one.calls] == [(7, 2)]


@pytest.mark.parametrize("dialect", ["openai-chat", "anthropic"])
def test_who_leaves_within_a_stream_pays_for_about_as_much_as_came(rig, dialect):
    release = threading.Event()
    begun = events(STREAMS[dialect][0], {"choices": [], "type": "x", "text": "y" * 3200})

    def never_ends(asked: Asked) -> Reply:
        def chunks():
            yield from begun
            release.wait(30)

        return Reply(headers=SSE, chunks=chunks())

    one = rig(never_ends, dialect=dialect, allowance=RemainingBudget(tokens=200))
    body = {"model": MODEL, "stream": True, "messages": [{"role": "user", "content": "x" * 400}]}
    with one.client.stream("POST", PATHS[dialect], json=body) as response:
        got = 0
        for chunk in response.iter_raw():
            got += len(chunk)
            if got == len(b"".join(begun)):
                break
    one.until_called()
    status = one.post(PATHS[dialect]).status_code
    release.set()

    assert status == 402
    (call,) = one.calls
    # Messages begin with the exact number of what was read.
    assert call.prompt_tokens == 7 if dialect == "anthropic" else call.prompt_tokens > 100
    assert call.completion_tokens == got // 16
