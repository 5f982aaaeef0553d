"""Texts: invisible characters, commands that an agent would run, and shortening.

Models read every character, but people who approve a skill can't see all of them. So skills must contain neither
hidden characters nor commands.
"""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Annotated

from pydantic import AfterValidator, JsonValue

_REFUSED = re.compile("[\0\ud800-\udfff]")
"""UTF-8 and Arrow reject half surrogate pairs; PostgreSQL rejects NUL."""


def storable(text: str) -> str:
    """Return the text with U+FFFD for each half surrogate pair and each NUL; two matching halves are joined."""
    if _REFUSED.search(text) is None:
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")


Text = Annotated[str, AfterValidator(storable)]
"""Text from outside, such as a reply or an error of a server."""


def storable_json(value: JsonValue) -> JsonValue:
    """Apply `storable` to all strings of a value, keys included."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, list):
        return [*map(storable_json, value)]
    return {storable(key): storable_json(one) for key, one in value.items()} if isinstance(value, dict) else value


def clean_parts(parts: Iterable[object]) -> None:
    """Make the texts and tool arguments in the parts of a pydantic-ai response storable, in place."""
    for part in parts:
        for name in ("content", "args"):
            value = getattr(part, name, None)
            if isinstance(value, str | dict):
                setattr(part, name, storable_json(value))


_UNDRAWN = re.compile(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\ufe00-\ufe0f\uffa0"
    "\U00016fe4\U0001d159\U000e0100-\U000e01ef]"
)
"""Letters, marks and symbols without a glyph: joiners, fillers, blanks and variation selectors."""
_SUSPECT = re.compile(r"[^\n\t -~]")
_OF_SCRIPTS = "\u0600-\u109f\u1780-\u18af\ufb50-\ufdff\ufe70-\ufefc"
_OF_EMOJI = "\u2190-\u2bff\U0001f000-\U0001faff"
_JOINED = re.compile(f"(?<=[{_OF_SCRIPTS}])[\u200c\u200d](?![\u200c\u200d])|(?<=[{_OF_EMOJI}])\u200d(?=[{_OF_EMOJI}])")
"""Single joiners in the spelling of scripts from Arabic to Mongolian, or in combined emoji."""
_REPLACED = r"\$(?:\d+|ARGUMENTS(?:\[\d+\])?|\{CLAUDE_\w+\})"
_COMMAND = re.compile(rf"(?:`(?:{_REPLACED})*){{3}}!|(?:^|[\s\ufeff]|{_REPLACED})!(?:{_REPLACED})*`")
"""Starts of commands as in Claude Code 2.1.197, also with a replaced argument in between."""


def is_hidden(character: str) -> bool:
    """Return whether a character has no glyph: Unicode's Cc, Cf, Cn, Co, Cs, Zl, Zp, and more; not newline and tab."""
    if character.isprintable() or character in "\n\t":
        return _UNDRAWN.match(character) is not None
    return unicodedata.category(character) != "Zs"


class VisibleCharacters(dict[int, str | int]):
    """A table for `str.translate` that shows hidden characters as `[U+200B]` or control symbols, except for `kept`."""

    def __init__(self, kept: str) -> None:
        super().__init__({ord(character): character for character in kept})

    def __missing__(self, code: int) -> str | int:
        shown = 0x2400 + code if code < 0x20 else f"[U+{code:04X}]" if is_hidden(chr(code)) else code
        return self.setdefault(code, shown)


def visible(text: str, kept: str = "\n\t") -> str:
    return text.translate(VisibleCharacters(kept))


def plain(text: str) -> str:
    """Return the text with LF line ends, and without the harmless variation selectors of emoji keyboards."""
    return re.sub("\r(?=\n)|[\ufe0e\ufe0f]", "", text)


def flaw_of_text(text: str) -> str:
    """Return the reason why a skill can't have this text, such as `has the invisible character ...`, or ""."""
    joined = {found.start() for found in _JOINED.finditer(text)}
    for found in _SUSPECT.finditer(text):
        if is_hidden(found[0]) and found.start() not in joined:
            return f"has the invisible character U+{ord(found[0]):04X} in line {line_at(text, found.start())}"
    if command := _COMMAND.search(text):
        return f"has ! next to a backtick in line {line_at(text, command.end())}, where Claude Code runs a command"
    return ""


def line_at(text: str, place: int) -> int:
    return text.count("\n", 0, place) + 1


MAX_TOLD_CHARS = 24_000
"""Limit of a message to the target between two answers: a tool's result, or a benchmark's feedback."""


def shortened(text: str, limit: int) -> str:
    """Return at most `limit` characters: the beginning and the end, with a mark between."""
    if len(text) <= limit:
        return text
    kept = max(0, limit - len(_mark(len(text))))
    return (text[: kept - kept // 2] + _mark(len(text) - kept) + text[len(text) - kept // 2 :])[:limit]


def longest_that_fits(lengths: Sequence[int], room: int) -> int:
    """Return the maximum length per text at which all texts fit into `room` characters."""
    free = room
    for place, length in enumerate(sorted(lengths)):
        share = max(0, free) // (len(lengths) - place)
        if length > share:
            return share
        free -= length
    return max(lengths, default=0)


def _mark(left_out: int) -> str:
    return f"\n[{left_out} characters left out]\n"
