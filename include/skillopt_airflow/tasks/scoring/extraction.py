"""Rules that extract the answer from a response: tags, the last line, a box, a regular expression."""

import re
from collections import deque
from itertools import pairwise
from typing import ClassVar, Literal

import regex
from pydantic import Field, field_validator

from skillopt_airflow.core.values.types import Value

MAX_PATTERN_CHARS = 20_000
"""Number of characters at the end of a response in which matches can start."""
PATTERN_SECONDS = 0.5
"""Timeout of a user's regular expression, since many need more than linear time on a text without a match."""
_FENCED = re.compile(r"\A```[\w+-]*[ \t]*\n((?:(?!```).)*)(?:```)?\Z", re.DOTALL)
_PLACEHOLDER = re.compile(
    r"(?:\.\.+|…|_+|"
    r"[\[({<]?(?:insert |put |write )?(?:your|the|my) (?:final |own |short )?answer(?: goes)?(?: here)?[\])}>]?)?",
    re.IGNORECASE,
)
_BETWEEN = re.compile(r"\s+(?:and|or|to)\s+|\s*,\s+", re.IGNORECASE)
"""The text between two tags that a sentence mentions: `<answer> and </answer>`."""
_MENTIONED = re.compile(r"[`'\"]?\s*(?:tags?\b|and\s*$)|[`'\"](?:\s|[,.;:)])", re.IGNORECASE)
"""The text after a tag that a sentence mentions."""
_CUT_TAG = re.compile(r"(?:^[ \t]*```|</?\w*)\Z", re.MULTILINE)
_PARAGRAPH_END = re.compile(r"\n[ \t]*\n")
_BRACES = re.compile(r"\\boxed\s*\{|\\.|[{}]", re.DOTALL)


class Extraction(Value):
    """Base of the rules; `from` in YAML selects one by its name."""

    last_line_instead: ClassVar[bool] = True
    """True if a response without an answer in the rule's form falls back to its last line."""

    def find(self, response: str) -> str | None:
        """Return the answer, or None if the response has none in the form of the rule."""
        raise NotImplementedError

    def extract(self, response: str) -> str:
        """Return the answer without surrounding whitespace; empty if there is none."""
        try:
            found = self.find(response)
        except (RecursionError, TimeoutError):
            found = None
        if found is None:
            found = last_line(response) if self.last_line_instead else ""
        return found.strip()


class InTags(Extraction):
    """The content of the last pair of tags, such as `<answer>Nile</answer>`, in any case.

    Echoes of the instruction, such as `<answer></answer>` or `<answer>...</answer>`, are ignored. If no pair has an
    answer, the answer is the paragraph after an opening tag, or the line before a closing one.
    """

    from_: Literal["tags"] = Field(default="tags", alias="from")
    tag: str = Field(default="answer", pattern=r"^[A-Za-z_][\w.-]*$")
    """The name between the angle brackets."""

    def find(self, response: str) -> str | None:
        name = rf"(?P<slash>[/\\]?)\s?{re.escape(self.tag)}(?:[\s/][^<>]*)?"
        tags = [*re.finditer(rf"<\s?{name}>", response, re.IGNORECASE)]
        # The pieces before, between and after the tags, each with the kinds of tag around it.
        kinds = ["", *("close" if tag["slash"] or tag[0].endswith("/>") else "open" for tag in tags), ""]
        starts, ends = [0, *(tag.end() for tag in tags)], [*(tag.start() for tag in tags), len(response)]
        pieces = [(sides, response[start:end]) for sides, start, end in zip(pairwise(kinds), starts, ends, strict=True)]
        before = [last_line(piece) for (left, right), piece in pieces if left != "open" and right == "close"]
        after = [_after_opening(piece) for (left, right), piece in pieces if left == "open" and right != "close"]
        pairs = [piece for sides, piece in pieces if sides == ("open", "close")]
        found = [answer for group in (before, after, pairs) for answer in group if not is_echo(answer)]
        if found:
            return _FENCED.sub(r"\1", found[-1].strip())
        if tags and not any(piece.strip() for _, piece in pieces):
            return ""
        # After nothing but an echo, a line below it is the answer.
        return pairs[-1] if pairs and tags[-1].end() > response.rfind(last_line(response)) else None


class LastLine(Extraction):
    """The last line that is not blank."""

    from_: Literal["last_line"] = Field(default="last_line", alias="from")

    def find(self, response: str) -> str | None:
        return last_line(response)


class Boxed(Extraction):
    r"""The content of the last complete \boxed{}, including inner braces."""

    from_: Literal["boxed"] = Field(default="boxed", alias="from")

    def find(self, response: str) -> str | None:
        opened: list[int | None] = []
        found, content = -1, None
        for brace in _BRACES.finditer(response):
            if brace[0] == "}" and opened:
                start = opened.pop()
                if start is not None and start > found:
                    found, content = start, response[start : brace.start()]
            elif brace[0] == "{":
                opened.append(None)
            elif brace[0].endswith("{") and len(brace[0]) > len("\\{"):
                opened.append(brace.end())
        return content


class RegexMatch(Extraction):
    """The last match of a regular expression: its first matched group, or the whole match if there are no groups."""

    last_line_instead: ClassVar[bool] = False

    from_: Literal["regex"] = Field(default="regex", alias="from")
    pattern: str
    """In the syntax of Python's `re`, for the package regex; with inline flags, such as `(?i)`."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        if reason := pattern_flaw(pattern):
            raise ValueError(reason)
        return pattern

    def find(self, response: str) -> str | None:
        """Search the last MAX_PATTERN_CHARS characters; raise TimeoutError after PATTERN_SECONDS."""
        start = max(0, len(response) - MAX_PATTERN_CHARS)
        last = deque(regex.finditer(self.pattern, response, pos=start, timeout=PATTERN_SECONDS), maxlen=1)
        return next((group for group in last[0].groups() if group is not None), last[0][0]) if last else None


def is_echo(answer: str) -> bool:
    """Return whether an answer is empty, or a placeholder that the response repeats from the instruction."""
    placeholder = _PLACEHOLDER.fullmatch(answer.strip(" \t\r\n`'\""))
    return (placeholder or _BETWEEN.fullmatch(answer)) is not None


def _after_opening(text: str) -> str:
    """Return the first paragraph, without a cut-off closing tag; empty if the text only mentions the tag."""
    if _MENTIONED.match(text):
        return ""
    return _CUT_TAG.sub("", _PARAGRAPH_END.split(text.strip(), maxsplit=1)[0].rstrip()).strip()


def last_line(text: str) -> str:
    """Return the last line that is not blank; empty if there is none."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def pattern_flaw(pattern: str) -> str:
    """Return the reason why a string isn't a regular expression, or an empty string."""
    try:
        regex.compile(pattern)
    except regex.error as error:
        return f"not a regular expression: {pattern!r}: {error}"
    return ""
