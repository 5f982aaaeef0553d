"""The tokens that a provider says it counted, in whichever wire format."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from skillopt_airflow.gateway.upstream import Dialect

MOST = 10**12
"""No answer has more tokens; a larger number would not fit into the usage table."""
MOST_ESTIMATED = 1_000_000
"""No model of today reads or writes more in a call; what a client writes into a request shall not spend a budget."""
BYTES_PER_TOKEN = 4
BYTES_PER_STREAMED_TOKEN = 16
"""Most of a stream is the frame of its events, of which each has one token or a few."""


@dataclass(frozen=True)
class Tokens:
    """Tokens of one call; zero where the provider says nothing."""

    prompt: int = 0
    completion: int = 0


class Meter:
    """Reads along with a stream of server-sent events, of which the largest counts hold."""

    def __init__(self) -> None:
        self._line = bytearray()
        self._tokens = Tokens()

    def feed(self, chunk: bytes) -> None:
        """Take the next bytes, which may end anywhere."""
        *lines, rest = chunk.split(b"\n")
        for line in lines:
            self._read(bytes(self._line) + line)
            self._line.clear()
        self._line += rest

    @property
    def tokens(self) -> Tokens:
        """What was counted so far, also if the stream ended within a line."""
        self._read(bytes(self._line))
        return self._tokens

    def _read(self, line: bytes) -> None:
        if line.startswith(b"data:") and b'"usage"' in line:
            more = tokens_of(line.removeprefix(b"data:"))
            self._tokens = Tokens(max(self._tokens.prompt, more.prompt), max(self._tokens.completion, more.completion))


def tokens_of(text: bytes) -> Tokens:
    """The usage inside a JSON document: an answer, or the data of one event."""
    usages = list(_usages(text))
    return Tokens(
        prompt=max([0, *map(_prompt, usages)]),
        completion=max([0, *(_count(usage, "completion_tokens", "output_tokens") for usage in usages)]),
    )


def estimated(request: bytes, streamed: int, seen: Tokens, dialect: Dialect) -> Tokens:
    """About what a call costs of whose answer nobody saw the end.

    Args:
        request: a JSON object.
        streamed: bytes of the answer that came; if none did, all tokens count that the request allows.
        seen: what the provider told so far.
        dialect: messages tell at their beginning the first few tokens of an answer, the others tell all at the end.
    """
    allowed = _count(json.loads(request), "max_tokens", "max_completion_tokens", "max_output_tokens")
    most = min(allowed or MOST_ESTIMATED, MOST_ESTIMATED)
    completion = min(streamed // BYTES_PER_STREAMED_TOKEN, most) if streamed else min(allowed, most)
    told_all = bool(seen.completion) and dialect != "anthropic"
    return Tokens(
        prompt=seen.prompt or min(len(request) // BYTES_PER_TOKEN, MOST_ESTIMATED),
        completion=seen.completion if told_all else max(seen.completion, completion),
    )


def _usages(text: bytes) -> Iterator[dict[str, Any]]:
    """At the top (all formats), in `response` (streamed responses), in `message` (streamed messages)."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return
    if not isinstance(document, dict):
        return
    for holder in (document, document.get("response"), document.get("message")):
        if isinstance(holder, dict) and isinstance(holder.get("usage"), dict):
            yield holder["usage"]


def _prompt(usage: dict[str, Any]) -> int:
    """Anthropic counts what was read from or written to its cache beside the rest, the others within it."""
    beside = sum(_count(usage, name) for name in ("cache_read_input_tokens", "cache_creation_input_tokens"))
    return max(_count(usage, "prompt_tokens"), _count(usage, "input_tokens") + beside)


def _count(usage: dict[str, Any], *names: str) -> int:
    counts = (usage.get(name) for name in names)
    return min(MOST, max([0, *(count for count in counts if isinstance(count, int))]))
