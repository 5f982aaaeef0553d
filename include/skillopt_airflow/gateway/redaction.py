"""Redaction of a connection's secrets in the answers of a model server."""

import json
import logging
import re
from collections.abc import Iterable

STARS = b"***"
SHORTEST_SECRET = 16
"""Characters. What is shorter, such as the customary key of a local server, may be any word of an answer."""
_DATA = b"data:"
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"(?:\s*:)?', re.DOTALL)
"""A string of a JSON text, with the colon behind it if it is a name."""

log = logging.getLogger(__name__)


class Redaction:
    """Replaces every secret by three stars, the longest first where several begin.

    In JSON only string values change. Names and structure stay, so a key that is a word of the wire format breaks no
    answer.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets: frozenset[bytes] = frozenset()
        self._pattern: re.Pattern[bytes] | None = None
        self.add(*secrets)

    def add(self, *secrets: str) -> None:
        """Replace these from here on, too."""
        given = frozenset(secret.encode() for secret in secrets)
        long = frozenset(secret for secret in given if len(secret) >= SHORTEST_SECRET)
        if len(long) < len(given):
            log.warning("A key of the connection is not redacted: it has fewer than %d characters", SHORTEST_SECRET)
        if not long <= self._secrets:
            self._secrets |= long
            longest_first = sorted(self._secrets, key=len, reverse=True)
            self._pattern = re.compile(b"|".join(map(re.escape, longest_first)))

    def whole(self, text: bytes) -> bytes:
        """Redact a complete answer, or a complete line of a stream."""
        if self._pattern is None or not self._pattern.search(text):
            return text
        field = _DATA if text.startswith(_DATA) else b""
        document = text.removeprefix(field)
        if _is_json(document):
            return field + _STRING.sub(self._string, document)
        return self._pattern.sub(STARS, text)

    def words(self, text: str) -> str:
        """Redact the value of a header."""
        return self.whole(text.encode()).decode()

    def stream(self) -> "RedactedStream":
        """Return the redaction of a stream of events."""
        return RedactedStream(self)

    @property
    def needed(self) -> bool:
        """Return whether there is anything to redact."""
        return self._pattern is not None

    def _string(self, found: re.Match[bytes]) -> bytes:
        text = found.group()
        return text if self._pattern is None or text.endswith(b":") else self._pattern.sub(STARS, text)


class RedactedStream:
    """Redacts a stream of events, holding back a line until it is complete."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._held: list[bytes] = []

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes, which may end anywhere, and return what may be passed on now."""
        if not self._redaction.needed:
            return chunk
        self._held.append(chunk)
        if b"\n" not in chunk:
            return b""
        *lines, rest = b"".join(self._held).split(b"\n")
        self._held = [rest]
        return b"".join(self._redaction.whole(line) + b"\n" for line in lines)

    def flush(self) -> bytes:
        """Return what was held back, once nothing follows."""
        rest, self._held = b"".join(self._held), []
        return self._redaction.whole(rest)


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
