import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.sandbox.usage import Tokens, tokens_of


@pytest.mark.parametrize(
    ("document", "tokens"),
    [
        ({"usage": {"prompt_tokens": 4, "completion_tokens": 2}}, Tokens(4, 2)),
        ({"usage": {"input_tokens": 4, "output_tokens": 2}}, Tokens(4, 2)),
        ({"usage": {"prompt_tokens": None}}, Tokens()),
        ({"usage": None}, Tokens()),
        ([], Tokens()),
    ],
)
def test_a_document_has_its_usage_at_the_top(document, tokens):
    assert tokens_of(json.dumps(document).encode(), "application/json") == tokens


def test_a_stream_has_it_in_some_events():
    events = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 9, "output_tokens": 1}}},
        {"type": "message_delta", "usage": {"output_tokens": 5}},
        {"type": "response.completed", "response": {"usage": {"input_tokens": 9, "output_tokens": 5}}},
    ]
    body = "".join(f"event: x\ndata: {json.dumps(event)}\n\n" for event in events)
    assert tokens_of(body.encode(), "text/event-stream; charset=utf-8") == Tokens(9, 5)


@given(st.binary(), st.sampled_from(["application/json", "text/event-stream"]))
def test_anything_may_come(body, content_type):
    assert tokens_of(body, content_type) == Tokens()
