import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.wire_formats import WIRE_FORMATS
from skillopt_airflow.core.wire_formats.wire_format import MAX_TOKENS, Tokens
from skillopt_airflow.gateway.request_filter import parse_object
from tests.gateway.scripted_provider import ANSWERS

CHAT, RESPONSES, MESSAGES = (WIRE_FORMATS[name] for name in ("openai-chat", "openai", "anthropic"))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(
    ("wire_format", "document", "tokens"),
    [
        (CHAT, {"usage": {"prompt_tokens": 4, "completion_tokens": 2}}, Tokens(4, 2)),
        (RESPONSES, {"usage": {"input_tokens": 4, "output_tokens": 2}}, Tokens(4, 2)),
        (MESSAGES, {"usage": {"input_tokens": 4, "cache_read_input_tokens": 30, "output_tokens": 1}}, Tokens(34, 1)),
        (RESPONSES, {"usage": {"input_tokens": 40, "input_tokens_details": {"cached_tokens": 30}}}, Tokens(40)),
        (CHAT, {"usage": {"input_tokens": 4, "output_tokens": 2, "total_tokens": 6}}, Tokens(4, 2)),
        (CHAT, {"usage": {"prompt_tokens": 4, "completion_tokens": 2, "input_tokens": 0}}, Tokens(4, 2)),
        (CHAT, {"usage": {"prompt_tokens": 10**30, "completion_tokens": -1}}, Tokens(MAX_TOKENS)),
        (CHAT, {"usage": {"prompt_tokens": None, "completion_tokens": "7"}}, Tokens()),
        (CHAT, {"usage": {"prompt_tokens": 4, "completion_tokens": 2, "total_tokens": 306}}, Tokens(4, 302)),
        (CHAT, {"usage": {"completion_tokens": 2, "total_tokens": 306}}, Tokens(0, 2)),
        (CHAT, {"usage": None}, Tokens()),
    ],
)
def test_a_document_has_its_usage_at_the_top(wire_format, document, tokens):
    assert wire_format.tokens(document) == tokens


@given(st.dictionaries(st.text(), JSON), st.sampled_from(list(WIRE_FORMATS.values())))
def test_no_document_breaks_the_check_of_an_answer(document, wire_format):
    assert wire_format.is_answer(document) in (True, False)
    assert wire_format.is_event(document) in (True, False)
    assert wire_format.tokens(document) == Tokens()


@pytest.mark.parametrize("name", ANSWERS)
def test_an_answer_is_one_in_its_own_format_alone(name):
    document = parse_object(ANSWERS[name]("x").body)
    assert [other for other, wire_format in WIRE_FORMATS.items() if wire_format.is_answer(document)] == [name]


@pytest.mark.parametrize("wire_format", WIRE_FORMATS.values())
def test_a_stream_does_not_begin_with_an_error(wire_format):
    first = {"type": "message_start", "choices": []}
    assert wire_format.is_event(first)
    assert not wire_format.is_event(first | {"error": {"message": "overloaded"}})
    assert not wire_format.is_event(first | {"type": "error"})
