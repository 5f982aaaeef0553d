"""Redaction of a connection's secrets in a model server's answers."""

import json
import logging
import re
from collections.abc import Mapping
from html import escape

STARS = b"***"
MIN_SECRET_CHARS = 16
"""A shorter key, such as a local server's usual dummy, may be an ordinary word of an answer."""

log = logging.getLogger(__name__)


class Redaction:
    """Replaces every secret with three stars, however its characters are escaped.

    Servers quote a key that they refuse: in JSON (PHP `\\/`, .NET `\\u002B`), in a URL or in HTML.
    """

    def __init__(self, secrets: Mapping[str, str]) -> None:
        """`secrets` has the connection of each secret, for a message."""
        self._patterns: dict[str, list[re.Pattern[bytes]]] = {}
        for conn_id in sorted({secrets[secret] for secret in secrets if len(secret) < MIN_SECRET_CHARS}):
            log.warning(
                "connection %s: its key isn't redacted from answers, since it has fewer than %d characters",
                conn_id,
                MIN_SECRET_CHARS,
            )
        self.add(*secrets)

    def add(self, *secrets: str) -> None:
        new = {secret for secret in secrets if len(secret) >= MIN_SECRET_CHARS} - self._patterns.keys()
        self._patterns |= {secret: _patterns(secret) for secret in new}
        # Longest first, because one secret may begin with another.
        self._patterns = {secret: self._patterns[secret] for secret in sorted(self._patterns, key=len, reverse=True)}

    def redact(self, text: bytes) -> bytes:
        """Redact an answer or a chunk of a stream. A secret that spans two chunks isn't found."""
        for patterns in self._patterns.values():
            for pattern in patterns:
                text = pattern.sub(STARS, text)
        return text

    def redact_text(self, text: str) -> str:
        return self.redact(text.encode()).decode()


def _patterns(secret: str) -> list[re.Pattern[bytes]]:
    """Return one pattern per spelling of the first character; a fixed first byte makes the search fast."""
    rest = b"".join(b"(?:%s)" % b"|".join(_spellings(character)) for character in secret[1:])
    return [re.compile(first + rest) for first in _spellings(secret[0])]


def _spellings(character: str) -> list[bytes]:
    """Return patterns for a character: in JSON, in a URL, in HTML and plain, each with a different first byte.

    Nested JSON and URLs have more backslashes or percent signs. The plain pattern is last, because an escaped
    character may end with it.
    """
    number, named = ord(character), escape(character)
    escaped = [f"u(?i:{number:04x})"] if character.isalnum() else [f"u(?i:{number:04x})", re.escape(character)]
    escaped += [json.dumps(character)[-2]] if character.isspace() else []
    entities = [f"#0{{0,4}}{number};", f"#(?i:x0{{0,4}}{number:x});"] + [named[1:]] * (named != character)
    patterns = (
        rf"\\\\{{0,7}}(?:{'|'.join(escaped)})",
        "".join(f"%(?:25){{0,3}}(?i:{byte:02x})" for byte in character.encode()),
        f"&(?:{'|'.join(entities)})",
        re.escape(character),
    )
    return [pattern.encode() for pattern in patterns]
