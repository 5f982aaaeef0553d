"""The tokens that a provider says it counted, in whichever wire format."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

EVENT_STREAM = "text/event-stream"


@dataclass(frozen=True)
class Tokens:
    """Tokens of one call; zero where the provider says nothing."""

    prompt: int = 0
    completion: int = 0


def tokens_of(body: bytes, content_type: str) -> Tokens:
    """The usage inside an answer: a JSON document, or an event stream, of which the largest counts hold."""
    documents = _events(body) if content_type.startswith(EVENT_STREAM) else _documents(body)
    prompt = completion = 0
    for document in documents:
        for usage in _usages(document):
            prompt = max(prompt, _count(usage, "prompt_tokens", "input_tokens"))
            completion = max(completion, _count(usage, "completion_tokens", "output_tokens"))
    return Tokens(prompt, completion)


def _documents(text: bytes) -> Iterator[dict[str, Any]]:
    try:
        document = json.loads(text)
    except ValueError:
        return
    if isinstance(document, dict):
        yield document


def _events(body: bytes) -> Iterator[dict[str, Any]]:
    for line in body.splitlines():
        if line.startswith(b"data:"):
            yield from _documents(line.removeprefix(b"data:"))


def _usages(document: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """At the top (all formats), in `response` (streamed responses), in `message` (streamed messages)."""
    for holder in (document, document.get("response"), document.get("message")):
        if isinstance(holder, dict) and isinstance(holder.get("usage"), dict):
            yield holder["usage"]


def _count(usage: dict[str, Any], *names: str) -> int:
    counts = (usage.get(name) for name in names)
    return max([0, *(count for count in counts if isinstance(count, int))])
