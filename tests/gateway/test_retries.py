import itertools
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import httpx
import pytest

from skillopt_airflow.gateway import backends, retries
from skillopt_airflow.gateway import one_try as attempt
from skillopt_airflow.gateway.remaining_budget import RemainingBudget
from tests.core.provider_rows import ERRORS
from tests.gateway.gateway_rig import MODEL, PATHS, Hanging, answer, upstream_at
from tests.gateway.scripted_provider import ANSWERS, Asked, Reply, ScriptedProvider, completion, events, failure

pytestmark = pytest.mark.slow


def then_answer(*replies: Reply):
    """The replies, one a request, and an answer to each request after them."""
    return lambda asked: replies[asked.number - 1] if asked.number <= len(replies) else answer(asked)


SSE = {"content-type": "text/event-stream"}
GARBAGE = {
    "no JSON": Reply(body=b"<html>ok</html>"),
    "another shape": Reply(body=b'{"error": {"message": "overloaded"}}'),
    "no choices": Reply(body=b'{"choices": []}'),
    "a choice without a message": Reply(body=b'{"choices": [{}]}'),
    "a choice that broke off": completion("Eif", finish_reason="error"),
    "a choice with an error": Reply(body=b'{"choices": [{"message": {"content": ""}, "error": {"code": 502}}]}'),
    "nested": Reply(body=b"[" * 100_000),
    "broken chunks": Reply(chunks=[b'{"choices": '], broken=b"xyz\r\n"),
    "cut off": Reply(chunks=[b'{"choices": '], broken=b"ff\r\n{"),
    "no gzip": Reply(body=b"plain", headers={"content-encoding": "gzip"}),
    "a redirection": Reply(302, headers={"location": "http://127.0.0.1:9/"}),
    "a stream without an event": Reply(headers=SSE, body=b": waiting\n\n"),
    "a stream of an error": Reply(headers=SSE, chunks=events({"error": {"message": "overloaded"}})),
    "a stream that ends before it begins": Reply(headers=SSE, body=b"data: [DONE]\n\n"),
    "a stream of no JSON": Reply(headers=SSE, body=b"data: <html>\n\n"),
    "a stream cut within its first event": Reply(headers=SSE, chunks=[b'data: {"choi'], broken=b"zz\r\n"),
}


@pytest.mark.parametrize("kind", sorted(GARBAGE))
def test_a_success_that_is_no_answer_is_asked_again(rig, kind):
    one = rig(then_answer(GARBAGE[kind]))

    response = one.post(stream=True)

    assert response.json()["choices"][0]["message"]["content"] == "Eiffel"
    assert one.outcomes() == [(200, 2)]


def test_passing_failures_are_asked_again_within_bounds_and_the_last_answer_comes_through(rig):
    one = rig(lambda asked: failure(500, f"broken {asked.number}"), max_attempts=2)

    response = one.post()

    assert (response.status_code, response.json()["error"]["message"]) == (500, "broken 2")
    assert response.headers["x-should-retry"] == "false"
    assert one.outcomes() == [(500, 2)]


@pytest.mark.parametrize(
    ("reply", "options", "words"),
    [
        (GARBAGE["no JSON"], {"max_attempts": 2}, "no JSON"),
        (completion(""), {"max_attempts": 1, "base_url": "http://127.0.0.1:9/v1"}, "cannot be reached"),
    ],
)
def test_no_answer_to_the_end_is_a_bad_gateway(rig, reply, options, words):
    one = rig(lambda asked: reply, **options)

    response = one.post()

    assert response.status_code == 502
    assert words in response.json()["error"]["message"]
    assert one.outcomes() == [(0, options["max_attempts"])]


@pytest.mark.parametrize("status", [400, 401, 404, 413, 422])
def test_a_wrong_request_is_not_asked_again_nor_of_a_fallback(rig, status):
    with ScriptedProvider(answer) as second:
        fallback = upstream_at(second.base_url, model="second")
        one = rig(lambda asked: failure(status), upstream={"fallbacks": (fallback,)})
        assert one.post().status_code == status
    assert (len(one.provider.requests), second.requests) == (1, [])


def test_a_server_that_hangs_is_asked_again_and_then_a_gateway_timeout(rig):
    hang = Hanging()
    one = rig(hang, max_attempts=2, call_timeout=0.2)
    response = one.post()
    hang.release()

    assert response.status_code == 504
    assert "did not answer within 0.2 s" in response.json()["error"]["message"]
    assert one.outcomes() == [(0, 2)]


def test_a_try_that_times_out_costs_what_it_may_have_cost(rig):
    hang_once = Hanging(lambda asked: asked.number == 1)
    one = rig(hang_once, max_attempts=2, call_timeout=0.5, allowance=RemainingBudget(tokens=50))
    assert one.post(max_tokens=100, messages=[{"role": "user", "content": "x" * 4000}]).status_code == 200
    hang_once.release()

    (call,) = one.calls
    assert (call.attempts, call.completion_tokens) == (2, 100 + 3)
    assert 1000 <= call.prompt_tokens - 11 < 1100
    assert one.post().status_code == 402


BROKE_OFF = {"error": {"message": "broke off"}, "usage": {"prompt_tokens": 11, "completion_tokens": 3}}


@pytest.mark.parametrize(
    ("answers", "attempts", "tokens"),
    [
        (then_answer(GARBAGE["a choice that broke off"]), 3, (22, 6)),
        (lambda asked: Reply(502, json.dumps(BROKE_OFF).encode()), 1, (11, 3)),
    ],
)
def test_what_is_no_answer_costs_the_usage_that_it_tells_once(rig, answers, attempts, tokens):
    one = rig(answers, max_attempts=attempts)
    assert one.post().status_code == (200 if attempts > 1 else 502)
    assert [(call.prompt_tokens, call.completion_tokens) for call in one.calls] == [tokens]


UNSAID = {"index": 0, "finish_reason": "content_filter: PROHIBITED_CONTENT"}
REFUSED = [
    (Reply(row.http_status, json.dumps(row.body).encode()), "openai" if "output" in row.body else "openai-chat")
    for row in ERRORS
    if row.http_status in (200, 500)
]
REFUSED += [
    # A filter left nothing of it.
    (Reply(body=json.dumps({"object": "chat.completion", "choices": [UNSAID]}).encode()), "openai-chat"),
    (Reply(headers=SSE, chunks=events({"error": {"message": "no", "code": "content_filter"}})), "openai-chat"),
]


@pytest.mark.parametrize(("reply", "dialect"), REFUSED)
def test_what_is_refused_or_too_long_is_not_asked_for_again(rig, reply, dialect):
    one = rig(lambda asked: reply, dialect=dialect)
    response = one.post(PATHS[dialect], stream=True)
    sent = reply.body or b"".join(reply.chunks).removeprefix(b"data: ")
    assert (response.status_code, response.json()) == (400, json.loads(sent))
    assert one.outcomes() == [(400, 1)]


def test_a_response_that_failed_on_the_server_is_asked_for_again(rig):
    broken = {"object": "response", "status": "failed", "output": [], "error": {"code": "server_error"}}
    replies = [Reply(body=json.dumps(broken).encode()), ANSWERS["openai"]("Eiffel")]
    one = rig(lambda asked: replies[asked.number - 1], dialect="openai")
    assert one.post(PATHS["openai"]).content == replies[-1].body
    assert one.outcomes() == [(200, 2)]


def test_an_ending_without_a_name_becomes_none(rig):
    one = rig(lambda asked: completion("Eiffel", finish_reason=""))
    assert one.post().json()["choices"][0]["finish_reason"] is None


@pytest.mark.parametrize("text", ["Your prompt was flagged: content_filter", "The prompt is too long (1026)."])
def test_words_of_the_model_refuse_nothing(rig, text):
    one = rig(lambda asked: completion(text))
    assert one.post().json()["choices"][0]["message"]["content"] == text


def test_a_host_that_takes_no_connection_was_asked_nothing(rig, monkeypatch):
    monkeypatch.setattr(backends, "CONNECT_SECONDS", 0.2)
    # Nobody accepts, and the queue of those who wait is full.
    with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf, ExitStack() as waiting:
        for _ in range(2):
            one = waiting.enter_context(socket.socket())
            one.setblocking(False)
            one.connect_ex(deaf.getsockname())
        one = rig(answer, base_url=f"http://127.0.0.1:{deaf.getsockname()[1]}/v1", max_attempts=1)
        response = one.post(max_tokens=100)
    assert "cannot be reached (ConnectTimeout)" in response.json()["error"]["message"]
    assert [(call.prompt_tokens, call.completion_tokens) for call in one.calls] == [(0, 0)]


def test_an_answer_over_its_size_is_not_asked_for_again(rig, monkeypatch):
    monkeypatch.setattr(attempt, "MAX_ANSWER_BYTES", 1000)
    one = rig(lambda asked: completion("x" * 1000))

    response = one.post()

    assert response.status_code == 502
    assert "more than 1000 bytes" in response.json()["error"]["message"]
    assert one.outcomes() == [(0, 1)]


def test_a_long_error_is_cut(rig, monkeypatch):
    monkeypatch.setattr(attempt, "MAX_ERROR_BYTES", 1000)
    one = rig(lambda asked: failure(400, "x" * 5000))
    assert len(one.post().content) == 1000


def test_a_status_that_http_does_not_know_is_a_bad_gateway(rig):
    one = rig(lambda asked: Reply(799, b"{}"), max_attempts=1)
    assert one.post().status_code == 502


def test_the_fallbacks_are_tried_in_order_under_their_own_names(rig):
    with (
        ScriptedProvider(lambda asked: failure(500)) as second,
        ScriptedProvider(answer) as third,
    ):
        fallbacks = (
            upstream_at(second.base_url, model="second", conn_id="b"),
            upstream_at(third.base_url, model="third", api_key="sk-third", conn_id="c"),
        )
        one = rig(lambda asked: failure(429, **{"retry-after": "0"}), upstream={"fallbacks": fallbacks}, max_attempts=2)

        assert one.post().status_code == 200

        assert [len(p.requests) for p in (one.provider, second, third)] == [2, 2, 1]
        assert [p.requests[0].body["model"] for p in (one.provider, second, third)] == [MODEL, "second", "third"]
        assert third.requests[0].headers["authorization"] == "Bearer sk-third"
        assert [(call.model, call.http_status, call.attempts) for call in one.calls] == [("third", 200, 5)]
        # A server that failed a whole call is left out for a while.
        assert one.post().status_code == 200
        assert [len(p.requests) for p in (one.provider, second, third)] == [2, 2, 2]


def test_where_every_server_failed_all_are_tried_again(rig):
    with ScriptedProvider(lambda asked: failure(500)) as second:
        fallback = upstream_at(second.base_url, model="second")
        one = rig(
            lambda asked: failure(500) if asked.number == 1 else answer(asked),
            upstream={"fallbacks": (fallback,)},
            max_attempts=1,
        )
        assert one.post().status_code == 500
        assert one.post().status_code == 200
        assert [(call.model, call.http_status) for call in one.calls] == [("second", 500), (MODEL, 200)]


def test_a_pause_that_the_server_asks_for_holds_for_every_call(rig):
    arrived: list[float] = []

    def once_overloaded(asked: Asked) -> Reply:
        arrived.append(time.monotonic())
        return failure(429, **{"retry-after": "1"}) if asked.number == 1 else answer(asked)

    one = rig(once_overloaded)
    with ThreadPoolExecutor(4) as pool:
        first = pool.submit(one.post)
        while not arrived:
            time.sleep(0.005)
        others = [pool.submit(one.post) for _ in range(3)]
        assert [call.result().status_code for call in (first, *others)] == [200] * 4

    # The others may have been sent before the first answer came back, but none between it and the end of the pause.
    later = [moment for moment in arrived if moment > arrived[0] + 0.5]
    assert later
    assert min(later) >= arrived[0] + 1.0


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("replies", "least"),
    [
        ([failure(429, **{"retry-after": "0"})] * 2, [0.1, 0.2]),
        ([failure(500, **{"retry-after": "0.02"})], [0.1]),
        ([failure(503, **{"retry-after": "0.3"})], [0.3]),
        ([failure(500)] * 2, [0.1, 0.2]),
        ([failure(503)] * 2, [0.1, 0.5]),
    ],
)
def test_a_pause_is_never_shorter_than_the_backoff(rig, monkeypatch, replies, least):
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.1)
    monkeypatch.setattr(retries.random, "uniform", lambda low, high: 1.0)
    arrived: list[float] = []

    def noted(asked: Asked) -> Reply:
        arrived.append(time.monotonic())
        return then_answer(*replies)(asked)

    assert rig(noted).post().status_code == 200

    gaps = [later - earlier for earlier, later in itertools.pairwise(arrived)]
    assert [later >= pause for later, pause in zip(gaps, least, strict=True)] == [True] * len(least)


def test_an_overloaded_server_is_soon_left_for_its_fallback(rig, monkeypatch):
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.1)
    monkeypatch.setattr(retries, "OVERLOAD_GROWTH", 1000)
    with ScriptedProvider(answer) as second:
        one = rig(lambda asked: failure(429), upstream={"fallbacks": (upstream_at(second.base_url, model="second"),)})
        began = time.monotonic()
        assert one.post().status_code == 200
        # The time of a try, which no pause exceeds, is longer.
        assert time.monotonic() - began < 4.5


@pytest.mark.parametrize(
    ("asked", "seconds"),
    [
        ("7", 7.0),
        ("Sat, 01 Jan 2028 00:00:09 GMT", 9.0),
        ("Fri, 31 Dec 2027 00:00:00 GMT", 0.0),
        ("Sat, 01 Jan 0001 00:00:00 +2359", None),
        ("Fri, 31 Dec 9999 23:59:59 -2359", None),
        ("Sat, 01 Jan 2028 00:00:00 +9999999999999", None),
        ("Sat, 99 Foo 2028", None),
        ("", None),
    ],
)
def test_any_retry_after_is_seconds_or_nothing(asked, seconds):
    headers = {"retry-after": asked, "date": "Sat, 01 Jan 2028 00:00:00 GMT"}
    found = attempt.retry_after(httpx.Response(429, headers=headers))
    assert found == seconds or (seconds is None and isinstance(found, float))
