import json
import logging
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.gateway.redaction import SHORTEST_SECRET, Redaction

KEY = "sk-secret-0123456789"
SECRETS = st.frozensets(st.text("ab", min_size=SHORTEST_SECRET, max_size=SHORTEST_SECRET + 4), max_size=4)
CUTS = st.sets(st.integers(0, 400))
CUSTOMARY = ["k", "x", "none", "EMPTY", "dummy", "ollama", "lm-studio", "token", "usage", "model", "completion_tokens"]
ANSWER = {
    "id": "c-1",
    "object": "chat.completion",
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "a token of the usage"}}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 2},
}


def plainly(text: str, secrets: frozenset[str]) -> str:
    """From left to right, the longest secret first."""
    done = ""
    while text:
        secret = max((one for one in secrets if text.startswith(one)), key=len, default="")
        done += "***" if secret else text[0]
        text = text[len(secret) or 1 :]
    return done


@given(SECRETS, st.data(), CUTS)
def test_a_secret_is_redacted_wherever_chunks_end(secrets, data, cuts):
    words = st.text("abc\n", max_size=3) | st.sampled_from(sorted(secrets) or [""])
    text = "".join(data.draw(st.lists(words, max_size=12)))
    stream = Redaction(secrets).stream()
    ends = sorted({0, len(text), *(min(cut, len(text)) for cut in cuts)})

    said = b"".join(stream.feed(text[start:end].encode()) for start, end in pairwise(ends)) + stream.flush()

    assert said.decode() == plainly(text, secrets)
    assert Redaction(secrets).whole(text.encode()) == said


@given(st.lists(st.binary()))
def test_without_secrets_every_chunk_passes_as_it_is(chunks):
    stream = Redaction(frozenset()).stream()
    assert [stream.feed(chunk) for chunk in chunks] == chunks
    assert stream.flush() == b""


@pytest.mark.parametrize("key", CUSTOMARY)
def test_a_customary_key_of_a_local_server_breaks_no_answer(key):
    text = json.dumps(ANSWER).encode()
    assert Redaction({key, KEY}).whole(text) == text
    assert Redaction({key}).whole(b"data: " + text) == b"data: " + text


def test_a_short_key_is_told_once(caplog):
    with caplog.at_level(logging.WARNING):
        Redaction({"k", "token", KEY})
    assert [record.getMessage() for record in caplog.records] == [
        "A key of the connection is not redacted: it has fewer than 16 characters"
    ]


leaf = st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from([KEY, f"wrong key {KEY}", f'"{KEY}"'])
documents = st.recursive(
    leaf, lambda one: st.lists(one, max_size=4) | st.dictionaries(st.text() | st.just(KEY), one, max_size=4)
)


def without(value):
    """The document with stars in its string values alone."""
    if isinstance(value, str):
        return value.replace(KEY, "***")
    if isinstance(value, list):
        return [without(one) for one in value]
    return {name: without(one) for name, one in value.items()} if isinstance(value, dict) else value


@given(documents, st.sampled_from([None, 1]), st.booleans())
def test_in_json_only_string_values_change(document, indent, ascii_only):
    text = json.dumps(document, indent=indent, ensure_ascii=ascii_only).encode(errors="surrogatepass")
    assert json.loads(Redaction({KEY}).whole(text)) == without(document)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"<html>{KEY}</html>", "<html>***</html>"),
        (f'{{"error": "wrong key {KEY}', '{"error": "wrong key ***'),
        (f'data: {{"error": "wrong key {KEY}"}}', 'data: {"error": "wrong key ***"}'),
        (f"event: {KEY}", "event: ***"),
    ],
)
def test_what_is_no_json_is_redacted_everywhere(text, said):
    assert Redaction({KEY}).whole(text.encode()).decode() == said


def test_a_line_waits_until_it_is_complete():
    stream = Redaction({KEY}).stream()
    assert [stream.feed(chunk) for chunk in (b"data: a", b" b\n", b"\ndata: sk-", b"c")] == [
        b"",
        b"data: a b\n",
        b"\n",
        b"",
    ]
    assert stream.flush() == b"data: sk-c"


def test_a_long_line_in_small_chunks_costs_little():
    stream = Redaction({KEY}).stream()
    said = b"".join(stream.feed(b"a" * 10) for _ in range(200_000)) + stream.flush()
    assert said == b"a" * 2_000_000
