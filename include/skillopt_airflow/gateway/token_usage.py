"""The tokens that a provider reports, or an estimate for an answer without an end."""

import json
import re

from skillopt_airflow.core.types import JsonObject
from skillopt_airflow.core.wire_formats.wire_format import Tokens, WireFormat, count

MOST_ESTIMATED = 1_000_000
"""No model of today reads or writes more in a call; what a client writes into a request shall not spend a budget."""
BYTES_PER_TOKEN = 4
LARGEST_SIDE = 2048
"""Pixels of a picture whose size nobody knows."""
ENCODED = re.compile(rb"(?<![A-Za-z0-9+/=])[A-Za-z0-9+/=]{4096,}")
"""A picture in Base64: no text has so many of these without a space or a quote."""
BYTES_PER_STREAMED_TOKEN = 16
"""Most of a stream is the frame of its events, of which each has one token or a few."""


class Meter:
    """Reads a stream of server-sent events as it passes, and keeps the largest counts."""

    def __init__(self, wire_format: WireFormat) -> None:
        self._wire_format = wire_format
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
        """The tokens counted so far, also if the stream ended within a line."""
        self._read(bytes(self._line))
        return self._tokens

    def _read(self, line: bytes) -> None:
        # Few events hold it, and the others need not be parsed.
        if line.startswith(b"data:") and b'"usage"' in line:
            more = tokens_of(line.removeprefix(b"data:"), self._wire_format)
            self._tokens = Tokens(max(self._tokens.prompt, more.prompt), max(self._tokens.completion, more.completion))


def tokens_of(text: bytes, wire_format: WireFormat) -> Tokens:
    """Return the usage inside a JSON document: an answer, or the data of one event."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        return Tokens()
    return wire_format.tokens(document) if isinstance(document, dict) else Tokens()


def estimated(request: bytes, streamed: int, seen: Tokens, wire_format: WireFormat) -> Tokens:
    """Return an estimate of a call whose answer nobody saw the end of.

    Args:
        request: a JSON object.
        streamed: bytes of the answer that came; if none did, all tokens count that the request allows.
        seen: what the provider told so far.
        wire_format: the format of the request.
    """
    document: JsonObject = json.loads(request)
    allowed = count(document, *wire_format.limits)
    most = min(allowed, MOST_ESTIMATED)
    completion = min(streamed // BYTES_PER_STREAMED_TOKEN, most) if streamed else most
    pictures = ENCODED.findall(request)
    text = len(request) - sum(map(len, pictures))
    read = text // BYTES_PER_TOKEN + len(pictures) * wire_format.picture_tokens(LARGEST_SIDE, LARGEST_SIDE)
    told_all = bool(seen.completion) and wire_format.usage_at_end
    return Tokens(
        prompt=seen.prompt or min(read, MOST_ESTIMATED),
        completion=seen.completion if told_all else max(seen.completion, completion),
    )
