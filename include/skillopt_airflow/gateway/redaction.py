"""Keeps the secrets of a connection out of what a model server says."""

import re
from collections.abc import Iterable

BLANK = b"***"


class Redaction:
    """Puts three stars in the place of every secret, of the longest where several begin."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._secrets = sorted((secret.encode() for secret in secrets), key=len, reverse=True)
        self._pattern = re.compile(b"|".join(map(re.escape, self._secrets)))

    def whole(self, text: bytes) -> bytes:
        """A text that is all there."""
        return self._pattern.sub(BLANK, text) if self._secrets else text

    def words(self, text: str) -> str:
        """The same for a header's value."""
        return self.whole(text.encode()).decode()

    def stream(self) -> "RedactedStream":
        """A text that comes in chunks."""
        return RedactedStream(self)

    def settled(self, text: bytes) -> int:
        """Up to where the text reads the same whatever follows it: the rest may still become a secret."""
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
        """Where the longest end of the text begins, within bounds, that is the beginning of a longer secret."""
        first = max(first, len(text) - len(self._secrets[0]) + 1)
        return next((at for at in range(first, end) if self._begins_one(text[at:])), None)

    def _begins_one(self, tail: bytes) -> bool:
        return any(len(secret) > len(tail) and secret.startswith(tail) for secret in self._secrets)


class RedactedStream:
    """Holds back no more than the end of a chunk that may still become a secret."""

    def __init__(self, redaction: Redaction) -> None:
        self._redaction = redaction
        self._held = b""

    def feed(self, chunk: bytes) -> bytes:
        """Take the next bytes, which may end anywhere; what may be said now."""
        text = self._held + chunk
        settled = self._redaction.settled(text)
        self._held = text[settled:]
        return self._redaction.whole(text[:settled])

    def flush(self) -> bytes:
        """What was held back, once nothing follows."""
        text, self._held = self._held, b""
        return self._redaction.whole(text)
