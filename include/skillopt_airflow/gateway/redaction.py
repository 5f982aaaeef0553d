"""Redaction of a connection's secrets in the answers of a model server."""

import re
from collections.abc import Iterable

BLANK = b"***"


class Redaction:
    """Replaces every secret by three stars, the longest first where several begin."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = sorted((secret.encode() for secret in secrets), key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._secrets)))

    def whole(self, text: bytes) -> bytes:
        """Redact a complete text."""
        return self._pattern.sub(BLANK, text) if self._secrets else text

    def words(self, text: str) -> str:
        """Redact the value of a header."""
        return self.whole(text.encode()).decode()

    def stream(self) -> "RedactedStream":
        """Return the redaction of a text that comes in chunks."""
        return RedactedStream(self)

    def settled(self, text: bytes) -> int:
        """Return the length of the text that reads the same whatever follows; the rest may still become a secret."""
        at = 0
        while self._secrets:
            found = self._pattern.search(text, at)
            tail = self._tail(text, at, len(text) if found is None else found.start() + 1)
            if tail is not None:
                return tail
            if found is None:
                break
            at = found.end()
        return len(text)

    def _tail(self, text: bytes, first: int, end: int) -> int | None:
        """Return where the longest end of the text starts, within bounds, that is the start of a longer secret."""
        first = max(first, len(text) - len(self._secrets[0]) + 1)
        return next((at for at in range(first, end) if self._begins_one(text[at:])), None)

    def _begins_one(self, tail: bytes) -> bool:
        return any(len(secret) > len(tail) and secret.startswith(tail) for secret in self._secrets)


class RedactedStream:
    """Redacts a stream, holding back only the end of a chunk that may still become a secret."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes, which may end anywhere, and return what may be passed on now."""
        text = self._held + chunk
        settled = self._redaction.settled(text)
        self._held = text[settled:]
        return self._redaction.whole(text[:settled])

    def flush(self) -> bytes:
        """Return what was held back, once nothing follows."""
        text, self._held = self._held, b""
        return self._redaction.whole(text)
