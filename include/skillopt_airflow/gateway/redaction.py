"""Redaction of a connection's secrets in the answers of a model server."""

import json
import logging
import re
from collections.abc import Iterable
from html import escape

STARS = b"***"
SHORTEST_SECRET = 16
"""Characters. A shorter key, such as the customary one of a local server, may be any word of an answer."""

log = logging.getLogger(__name__)


class Redaction:
    """Replaces every secret with three stars, however its characters are escaped.

    Servers repeat a key that they refuse, and escape it as JSON (PHP `\\/`, .NET `\\u002B`), in a URL or in HTML.
    """

    def __init__(self, secrets: Iterable[str]) -> None:
        self._patterns: dict[str, list[re.Pattern[bytes]]] = {}
        self.add(*secrets)

    def add(self, *secrets: str) -> None:
        """Replace these from here on, too."""
        if any(len(secret) < SHORTEST_SECRET for secret in secrets):
            log.warning("A key of the connection is not redacted: it has fewer than %d characters", SHORTEST_SECRET)
        new = {secret for secret in secrets if len(secret) >= SHORTEST_SECRET} - self._patterns.keys()
        self._patterns |= {secret: _patterns(secret) for secret in new}
        # A secret may begin with another.
        self._patterns = {secret: self._patterns[secret] for secret in sorted(self._patterns, key=len, reverse=True)}

    def whole(self, text: bytes) -> bytes:
        """Redact an answer, or a chunk of a stream, in which a secret that spans two chunks stays."""
        for patterns in self._patterns.values():
            for pattern in patterns:
                text = pattern.sub(STARS, text)
        return text

    def words(self, text: str) -> str:
        return self.whole(text.encode()).decode()


def _patterns(secret: str) -> list[re.Pattern[bytes]]:
    """Return a pattern for each way to write the first character, so that the search skips to where one begins."""
    rest = b"".join(b"(?:%s)" % b"|".join(_spellings(character)) for character in secret[1:])
    return [re.compile(first + rest) for first in _spellings(secret[0])]


def _spellings(character: str) -> list[bytes]:
    """Return patterns for a character: in JSON, in a URL, in HTML and plain, each with a separate first byte.

    JSON or a URL within another has more backslashes or percent signs. The plain one is last, because an escaped
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
