import html
import json
import logging
import re
import time
from collections.abc import Iterable
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import SecretStr

from skillopt_airflow.gateway.redaction import MIN_SECRET_CHARS, Redaction
from skillopt_airflow.gateway.upstream import Upstream

KEY = "sk-secret-0123456789"
SECRETS = st.frozensets(st.text("ab", min_size=MIN_SECRET_CHARS, max_size=MIN_SECRET_CHARS + 4), max_size=4)
CUSTOMARY = ["k", "x", "none", "EMPTY", "dummy", "ollama", "lm-studio", "token", "usage", "model"]
ANSWER = {
    "id": "c-1",
    "object": "chat.completion",
    "model": "m",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "a token of the usage"}}],
    "usage": {"prompt_tokens": 7, "completion_tokens": 2},
}


def redaction(secrets: Iterable[str]) -> Redaction:
    return Redaction(dict.fromkeys(secrets, "connection"))


@given(SECRETS, st.data())
def test_every_secret_is_redacted_the_longest_first(secrets, data):
    words = st.text("abc\n", max_size=3) | st.sampled_from(sorted(secrets) or [""])
    text = "".join(data.draw(st.lists(words, max_size=12)))
    said = redaction(secrets).redact(text.encode()).decode()
    assert not any(secret in said for secret in secrets)
    # Secrets that overlap may be redacted together.
    assert secrets or said == text
    if len(secrets) == 1:
        assert said == text.replace(*secrets, "***")


ENCODED = {
    "plain": lambda key: key,
    "PHP": lambda key: key.replace("/", "\\/"),
    ".NET": lambda key: "".join(char if char.isalnum() else f"\\u{ord(char):04X}" for char in key),
    "Gson": lambda key: key.replace("=", "\\u003d").replace("&", "\\u0026"),
    "all in JSON": lambda key: "".join(f"\\u{ord(char):04x}" for char in key),
    "mixed": lambda key: key.replace("/", "\\/").replace("+", "%2B").replace("=", "\\u003D"),
    "URL": lambda key: quote(key, safe=""),
    "URL in lower case": lambda key: re.sub("%..", lambda code: code[0].lower(), quote(key, safe="")),
    "URL within a URL": lambda key: quote(quote(key, safe=""), safe=""),
    "all in a URL": lambda key: "".join(f"%{byte:02x}" for byte in key.encode()),
    "HTML": html.escape,
    "HTML by numbers": lambda key: "".join(f"&#{ord(char)};" for char in key),
    "HTML by hexadecimal numbers": lambda key: "".join(f"&#x{ord(char):X};" for char in key),
    "JSON": lambda key: json.dumps(key)[1:-1],
    "JSON within JSON": lambda key: json.dumps(json.dumps(key.replace("/", "\\/")))[3:-3],
}


@pytest.mark.parametrize(
    "key", ["sk-Ab+Cd/EfGhIjKlMn0123456789==", "a\"b\\c&d<e>f'g/h\nijklmnop", "/+==&&&&&&&&&&&&&&&&", KEY]
)
@pytest.mark.parametrize("encoding", ENCODED)
def test_the_escaped_spellings_of_a_secret_are_secrets_too(key, encoding):
    assert redaction({key}).redact(f'wrong "{ENCODED[encoding](key)}" here'.encode()) == b'wrong "***" here'


@pytest.mark.parametrize("piece", ["a", "s", "\\", "%25", "&#0", "&#x000", "sk-Ab+Cd/EfGhIjKl", "\\u0073", "%73"])
def test_a_long_answer_takes_linear_time_and_no_memory(piece):
    one = redaction({"sk-Ab+Cd/EfGhIjKlMn0123456789=="})
    text = (piece * (2**20 // len(piece))).encode()
    began = time.process_time()
    assert one.redact(text) == text
    assert time.process_time() - began < 1.0


@pytest.mark.parametrize("key", CUSTOMARY)
def test_a_customary_key_of_a_local_server_breaks_no_answer(key):
    text = json.dumps(ANSWER).encode()
    assert redaction({key, KEY}).redact(text) == text
    assert redaction({key}).redact(b"data: " + text) == b"data: " + text


def test_a_short_key_is_told_once_with_its_connection(caplog):
    with caplog.at_level(logging.WARNING):
        Redaction({"k": "first", "token": "first", "short": "second", KEY: "third"})
    assert [record.args[0] for record in caplog.records] == ["first", "second"]


AWS = {"region_name": "eu-west-1", "aws_access_key_id": "id-of-aws", "aws_secret_access_key": "aws-secret"}
NOVA = {"dialect": "openai-chat", "base_url": "", "model": "nova", "provider": "bedrock", "arguments": json.dumps(AWS)}
UPSTREAM = Upstream(
    conn_id="first",
    dialect="openai-chat",
    base_url="http://127.0.0.1:9/v1",
    model="m",
    api_key=SecretStr("key-of-the-first"),
    fallbacks=(Upstream.model_validate(NOVA),),
)
OF_UPSTREAM = {"key-of-the-first", "id-of-aws", "aws-secret"}


def test_only_the_method_for_it_reveals_the_secrets() -> None:
    revealed = json.dumps(UPSTREAM.dump_with_secrets())
    hidden = [repr(UPSTREAM), str(UPSTREAM), UPSTREAM.model_dump_json(), json.dumps(UPSTREAM.model_dump(mode="json"))]
    for secret in OF_UPSTREAM:
        assert secret in revealed
        assert not any(secret in text for text in hidden)
    assert Upstream.model_validate_json(revealed) == UPSTREAM


def test_the_secrets_and_nothing_else_that_the_provider_is_made_with() -> None:
    assert UPSTREAM.secrets().keys() == OF_UPSTREAM
    assert Upstream(dialect="openai", base_url="http://127.0.0.1:9/v1", model="m").secrets() == {}
