import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.gateway.token_usage import MOST, MOST_ESTIMATED, Meter, Tokens, estimated, tokens_of


@pytest.mark.parametrize(
    ("document", "tokens"),
    [
        ({"usage": {"prompt_tokens": 4, "completion_tokens": 2}}, Tokens(4, 2)),
        ({"usage": {"input_tokens": 4, "output_tokens": 2}}, Tokens(4, 2)),
        ({"usage": {"input_tokens": 4, "cache_read_input_tokens": 30, "cache_creation_input_tokens": 5}}, Tokens(39)),
        ({"usage": {"input_tokens": 40, "input_tokens_details": {"cached_tokens": 30}}}, Tokens(40)),
        ({"usage": {"prompt_tokens": 10**30, "completion_tokens": -1}}, Tokens(MOST)),
        ({"usage": {"prompt_tokens": None, "completion_tokens": "7"}}, Tokens()),
        ({"usage": None}, Tokens()),
        ([], Tokens()),
    ],
)
def test_a_document_has_its_usage_at_the_top(document, tokens):
    assert tokens_of(json.dumps(document).encode()) == tokens


STREAMS = {
    "messages": [
        {"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}},
        {"type": "content_block_delta", "delta": {"text": '"usage"'}},
        {"type": "message_delta", "usage": {"output_tokens": 5}},
    ],
    "responses": [
        {"type": "response.created", "response": {"usage": None}},
        {"type": "response.completed", "response": {"usage": {"input_tokens": 9, "output_tokens": 5}}},
    ],
    "chat completions": [
        {"choices": [{"delta": {"content": "Eiffel"}}], "usage": None},
        {"choices": [], "usage": {"prompt_tokens": 9, "completion_tokens": 5}},
    ],
}


def stream(events, line_end="\n"):
    return "".join(f"event: x{line_end}data: {json.dumps(event)}{line_end}{line_end}" for event in events).encode()


@given(st.sampled_from(sorted(STREAMS)), st.sampled_from(["\n", "\r\n"]), st.sets(st.integers(0, 400)))
def test_a_stream_has_it_in_some_events_wherever_its_chunks_end(name, line_end, cuts):
    body = stream(STREAMS[name], line_end)
    meter = Meter()
    for start, end in pairwise(sorted({0, len(body), *(min(cut, len(body)) for cut in cuts)})):
        meter.feed(body[start:end])
    assert meter.tokens == Tokens(9, 5)


def test_what_came_before_a_stream_broke_off_counts():
    meter = Meter()
    meter.feed(stream(STREAMS["messages"])[:150])
    assert meter.tokens == Tokens(9, 1)
    meter.feed(b'\ndata: {"usage": {"output_tokens": 4}}')
    assert meter.tokens == Tokens(9, 4)


@given(st.lists(st.one_of(st.binary(), st.sampled_from([b'data: {"usage"', b"\n", b"[" * 3000])), max_size=6))
def test_anything_may_come(chunks):
    meter = Meter()
    for chunk in chunks:
        meter.feed(chunk)
    assert meter.tokens == Tokens()
    assert tokens_of(b"".join(chunks)) == Tokens()


@pytest.mark.parametrize(
    ("request_fields", "streamed", "seen", "completion"),
    [
        ({"max_tokens": 50}, 0, Tokens(), 50),
        ({"max_completion_tokens": 60, "max_tokens": 1}, 0, Tokens(), 60),
        ({"max_output_tokens": 10**30}, 0, Tokens(), MOST_ESTIMATED),
        ({"max_tokens": "50"}, 0, Tokens(), 0),
        ({"max_tokens": 50}, 160, Tokens(), 10),
        ({"max_tokens": 50}, 1600, Tokens(), 50),
        ({}, 1600, Tokens(), 100),
        ({}, 1600, Tokens(0, 7), 7),
    ],
)
def test_what_nobody_saw_the_end_of_is_estimated(request_fields, streamed, seen, completion):
    request = json.dumps({"model": "m", "messages": ["x" * 400]} | request_fields).encode()
    assert estimated(request, streamed, seen, "openai") == Tokens(len(request) // 4, completion)


def test_the_tokens_at_the_beginning_of_messages_are_not_all():
    assert estimated(b"{}", 1600, Tokens(9, 1), "anthropic") == Tokens(9, 100)
    assert estimated(b"{}", 1600, Tokens(9, 500), "anthropic") == Tokens(9, 500)


def test_what_was_seen_of_a_prompt_is_no_estimate_and_no_estimate_is_without_bounds():
    assert estimated(b"{}" + b" " * 4000, 0, Tokens(7, 0), "openai") == Tokens(7, 0)
    assert estimated(b"{}" + b" " * (5 * MOST_ESTIMATED), 0, Tokens(), "openai") == Tokens(MOST_ESTIMATED, 0)
