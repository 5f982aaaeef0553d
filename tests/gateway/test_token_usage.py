import base64
import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.wire_formats import WIRE_FORMATS
from skillopt_airflow.core.wire_formats.wire_format import Tokens
from skillopt_airflow.gateway.remaining_budget import RemainingBudget
from skillopt_airflow.gateway.retries import MAX_ESTIMATED, Meter, estimate_tokens, tokens_of
from tests.gateway.test_streams import STREAMS

CHAT, RESPONSES, MESSAGES = (WIRE_FORMATS[name] for name in ("openai-chat", "openai", "anthropic"))


def stream(events, line_end="\n"):
    return "".join(f"event: x{line_end}data: {json.dumps(event)}{line_end}{line_end}" for event in events).encode()


def test_a_request_of_almost_pictures_is_estimated_in_its_time():
    """Were each of its characters the beginning of another look, this would take minutes."""
    text = ("a" * 4095 + " ") * 8000
    request = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}], "max_tokens": 5}).encode()
    assert estimate_tokens(request, 0, Tokens(), CHAT).prompt == MAX_ESTIMATED


@given(st.sampled_from(sorted(STREAMS)), st.sampled_from(["\n", "\r\n"]), st.sets(st.integers(0, 400)))
def test_a_stream_has_it_in_some_events_wherever_its_chunks_end(dialect, line_end, cuts):
    body = stream(STREAMS[dialect], line_end)
    meter = Meter(WIRE_FORMATS[dialect])
    for start, end in pairwise(sorted({0, len(body), *(min(cut, len(body)) for cut in cuts)})):
        meter.feed(body[start:end])
    assert meter.tokens == Tokens(7, 2)


def test_what_came_before_a_stream_broke_off_counts():
    meter = Meter(MESSAGES)
    meter.feed(stream(STREAMS["anthropic"])[:150])
    assert meter.tokens == Tokens(7, 0)
    meter.feed(b'\ndata: {"usage": {"output_tokens": 4}}')
    assert meter.tokens == Tokens(7, 4)


@given(st.lists(st.one_of(st.binary(), st.sampled_from([b'data: {"usage"', b"\n", b"[" * 3000])), max_size=6))
def test_anything_may_come(chunks):
    meter = Meter(CHAT)
    for chunk in chunks:
        meter.feed(chunk)
    assert meter.tokens == Tokens()
    assert tokens_of(b"".join(chunks), CHAT) == Tokens()


@pytest.mark.parametrize(
    ("wire_format", "request_fields", "streamed", "seen", "completion"),
    [
        (CHAT, {"max_tokens": 50}, 0, Tokens(), 50),
        (CHAT, {"max_completion_tokens": 60, "max_tokens": 1}, 0, Tokens(), 60),
        (RESPONSES, {"max_output_tokens": 10**30}, 0, Tokens(), MAX_ESTIMATED),
        (CHAT, {"max_tokens": "50"}, 0, Tokens(), 0),
        (CHAT, {"max_tokens": 50}, 160, Tokens(), 10),
        (CHAT, {"max_tokens": 50}, 1600, Tokens(), 50),
        (CHAT, {"max_tokens": 500}, 1600, Tokens(), 100),
        (CHAT, {"max_tokens": 500}, 1600, Tokens(0, 7), 7),
        # The tokens at the beginning of messages are not all.
        (MESSAGES, {"max_tokens": 500}, 1600, Tokens(9, 1), 100),
        (MESSAGES, {"max_tokens": 500}, 1600, Tokens(9, 500), 500),
        (RESPONSES, {"pad": " " * (5 * MAX_ESTIMATED)}, 0, Tokens(), 0),
    ],
)
def test_what_nobody_saw_the_end_of_is_estimated(wire_format, request_fields, streamed, seen, completion):
    request = json.dumps({"model": "m", "messages": ["x" * 400]} | request_fields).encode()
    prompt = seen.prompt or min(len(request) // 4, MAX_ESTIMATED)
    assert estimate_tokens(request, streamed, seen, wire_format) == Tokens(prompt, completion)


@pytest.mark.parametrize(("wire_format", "tokens"), [(CHAT, 765), (MESSAGES, 1600)])
def test_a_picture_is_not_estimated_by_its_bytes(wire_format, tokens):
    picture = base64.b64encode(bytes(400_000)).decode()
    request = json.dumps({"messages": ["x" * 400, {"url": f"data:image/png;base64,{picture}"}]}).encode()
    assert estimate_tokens(request, 0, Tokens(), wire_format).prompt == (len(request) - len(picture)) // 4 + tokens


AMOUNTS = st.builds(
    RemainingBudget,
    calls=st.none() | st.integers(-5, 100),
    tokens=st.none() | st.integers(-5, 100),
    usd=st.none() | st.floats(-1, 10),
    input_price=st.just(2.0),
    output_price=st.just(10.0),
)


def test_each_limit_has_its_name():
    assert RemainingBudget().minus(calls=10**9, prompt_tokens=10**12).used_up() == ""
    assert RemainingBudget(calls=0).used_up() == "budget.max_calls"
    assert RemainingBudget(calls=1, tokens=-3).used_up() == "budget.max_tokens"
    assert RemainingBudget(tokens=1, usd=0.0).used_up() == "budget.max_usd"


def test_tokens_cost_by_the_million():
    left = RemainingBudget(usd=1.0, tokens=3_000_000, input_price=0.25, output_price=2.0)
    assert left.minus(prompt_tokens=1_000_000, completion_tokens=100_000).usd == 1.0 - 0.25 - 0.2
    assert left.minus(prompt_tokens=1_000_000, completion_tokens=100_000).tokens == 1_900_000


def test_any_limit_is_one():
    assert not RemainingBudget(input_price=1.0).is_limited
    assert all(RemainingBudget(**{name: 0}).is_limited for name in ("calls", "tokens", "usd"))


@given(AMOUNTS, st.integers(0, 9), st.integers(0, 99), st.integers(0, 99))
def test_spending_never_brings_anything_back(left, calls, prompt, completion):
    after = left.minus(calls=calls, prompt_tokens=prompt, completion_tokens=completion)
    if left.used_up():
        assert after.used_up()
    assert RemainingBudget.model_validate_json(after.model_dump_json()) == after
