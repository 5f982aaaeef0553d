from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.gateway.redaction import Redaction

SECRETS = st.frozensets(st.text("ab", min_size=1, max_size=5), max_size=4)
CUTS = st.sets(st.integers(0, 60))


def plainly(text: str, secrets: frozenset[str]) -> str:
    """From left to right, the longest secret first."""
    done = ""
    while text:
        secret = max((one for one in secrets if text.startswith(one)), key=len, default="")
        done += "***" if secret else text[0]
        text = text[len(secret) or 1 :]
    return done


@given(SECRETS, st.data(), CUTS)
def test_a_secret_is_blanked_wherever_chunks_end(secrets, data, cuts):
    words = st.text("abc", max_size=3) | st.sampled_from(sorted(secrets) or [""])
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


@pytest.mark.parametrize(
    ("chunks", "said"),
    [
        (["a text", " and more"], [b"a text", b" and more"]),
        (["my sk", "-key, sk-kex"], [b"my ", b"***, sk-kex"]),
        (["sk-k", "e", "y"], [b"", b"", b"***"]),
        (["s", "s", "sk-key"], [b"", b"s", b"s***"]),
    ],
)
def test_only_a_tail_that_may_become_a_secret_waits(chunks, said):
    stream = Redaction(frozenset({"sk-key"})).stream()
    assert [stream.feed(chunk.encode()) for chunk in chunks] == said


def test_a_tail_that_did_not_become_one_comes_at_the_end():
    stream = Redaction(frozenset({"sk-key"})).stream()
    assert (stream.feed(b"my sk-k"), stream.flush()) == (b"my ", b"sk-k")


def test_a_long_token_costs_little():
    token = "a" * 2000
    stream = Redaction(frozenset({token})).stream()
    said = b"".join(stream.feed(b"a" * 100) for _ in range(205)) + stream.flush()
    assert said == b"***" * 10 + b"a" * 500
