"""The skill document: Markdown with protected regions that step edits can't change, and its semantic density."""

import re
from dataclasses import dataclass
from difflib import unified_diff
from functools import cached_property
from itertools import chain
from typing import Literal, NamedTuple, get_args

from skillopt_airflow.core.errors import SkillError
from skillopt_airflow.core.values.text import flaw_of_text, line_at, plain
from skillopt_airflow.core.values.types import sha256

Region = Literal["SLOW_UPDATE", "APPENDIX"]
REGIONS: tuple[Region, ...] = get_args(Region)
_MARKER = re.compile(rf"<!--\s*(?P<region>{'|'.join(REGIONS)})_(?P<side>START|END)\s*-->")

_MAX_ALIKE = 2_000
"""Limit of anchors for the lenient search, which takes quadratic time."""
_QUOTES = ('"“”„«»', "'‘’‚`´")


def skill_name(benchmark: str) -> str:
    """Return the name of a benchmark's skill in the form of the Agent Skills specification."""
    return re.sub(r"[^a-z0-9]+", "-", benchmark.lower()).strip("-")[:64].strip("-") or "skill"


class Span(NamedTuple):
    """A range of characters of a document; excludes `end`."""

    start: int
    end: int


@dataclass(frozen=True)
class SkillDocument:
    """A skill. Its protected regions include their START and END markers."""

    text: str

    @cached_property
    def sha256(self) -> str:
        return sha256(self.text)

    @cached_property
    def protected(self) -> tuple[Span, ...]:
        """The protected regions in document order.

        Raises SkillError if a marker is duplicated, or its partner is missing or inside another region.
        """
        spans: list[Span] = []
        opened: re.Match[str] | None = None
        seen: set[str] = set()
        for marker in _MARKER.finditer(self.text):
            if marker["side"] == "START" and opened is None and marker["region"] not in seen:
                opened = marker
            elif marker["side"] == "END" and opened is not None and opened["region"] == marker["region"]:
                spans.append(Span(opened.start(), marker.end()))
                seen.add(marker["region"])
                opened = None
            else:
                raise SkillError(
                    f"skill, line {line_at(self.text, marker.start())}: {marker[0]} is duplicated or has no partner"
                )
        if opened is not None:
            raise SkillError(f"skill, line {line_at(self.text, opened.start())}: {opened[0]} has no END")
        return tuple(spans)

    @property
    def body(self) -> str:
        return self.text[: self.editable[0].end]

    def region(self, name: str) -> str | None:
        """Return the text inside a protected region without the newlines at its markers; None if there is none."""
        inside = self.region_span(name)
        return None if inside is None else self.text[inside.start : inside.end].removeprefix("\n").removesuffix("\n")

    def region_span(self, name: str) -> Span | None:
        """Return the span between a region's markers."""
        for span in self.protected:
            markers = list(_MARKER.finditer(self.text, span.start, span.end))
            if markers[0]["region"] == name:
                return Span(markers[0].end(), markers[-1].start())
        return None

    def with_region(self, name: Region, inside: str) -> "SkillDocument":
        """Return the document with this text in the region, which is added at the end if there is none.

        Raise SkillError if the text contains a marker.
        """
        if has_marker(inside):
            raise SkillError(f"the text for region {name} contains a marker of a protected region. Remove it")
        return self.spliced(*self.region_splice(name, inside))

    def region_splice(self, name: str, inside: str) -> tuple[Span, str]:
        """Return the span that `with_region` replaces, and its replacement."""
        current, lines = self.region_span(name), f"\n{inside}\n" if inside else "\n"
        if current is not None:
            unchanged = self.region(name) == inside
            return current, self.text[current.start : current.end] if unchanged else lines
        end = len(self.text.rstrip("\n"))
        lead = "\n\n" if end else ""
        return Span(end, len(self.text)), f"{lead}<!-- {name}_START -->{lines}<!-- {name}_END -->\n"

    @property
    def editable(self) -> tuple[Span, ...]:
        """The spans before, between and after the protected regions; some may be empty."""
        edges = [0, *chain.from_iterable(self.protected), len(self.text)]
        return tuple(Span(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True))

    def find(self, anchor: str) -> Span | None:
        """Return the first occurrence of `anchor` inside editable text.

        If there is no exact one, return the first that differs only in whitespace or typographic quotes.
        """
        for span in self.editable:
            start = self.text.find(anchor, span.start, span.end)
            if start >= 0:
                return Span(start, start + len(anchor))
        if len(anchor) > _MAX_ALIKE:
            return None
        alike = re.compile(r"\s+".join("".join(map(_alike, word)) for word in anchor.split()))
        found = (alike.search(self.text, span.start, span.end) for span in self.editable)
        return next((Span(*match.span()) for match in found if match and match[0]), None)

    def spliced(self, span: Span, text: str) -> "SkillDocument":
        return SkillDocument(self.text[: span.start] + text + self.text[span.end :])

    @property
    def regions(self) -> dict[str, str]:
        """The texts of the protected regions by name, markers included, in document order."""
        texts = [self.text[span.start : span.end] for span in self.protected]
        return {marker["region"]: text for text in texts if (marker := _MARKER.match(text)) is not None}


def skill_of_person(text: str, where: str) -> SkillDocument:
    """Return the text of a user's file or key as a skill; raise SkillError if it has a flaw."""
    if flaw := flaw_of_text(plain(text)):
        raise SkillError(f"{where}: the skill {flaw}. Remove it.")
    return SkillDocument(plain(text))


def _alike(character: str) -> str:
    return next((f"[{kind}]" for kind in _QUOTES if character in kind), re.escape(character))


def has_marker(text: str) -> bool:
    return _MARKER.search(text) is not None


def before_markers(text: str) -> str:
    return _MARKER.split(text, maxsplit=1)[0]


def without_markers(text: str) -> str:
    # The text around a removed marker can form another one.
    while has_marker(text):
        text = _MARKER.sub("", text)
    return text


def diff_of(before: str, after: str) -> str:
    """Return the unified diff of two skills with three lines of context, without file names; empty if equal."""
    lines = unified_diff(before.split("\n"), after.split("\n"), lineterm="")
    return "\n".join(list(lines)[2:])


CHARS_PER_TOKEN = 4
"""An estimate for English text; other languages and code have fewer."""

DENSITY_WEIGHT = 0.05
"""A skill with score 1 and 1,000 tokens gets half of it."""
MANY_TOKENS = 2_000
"""The paper's skills are shorter; longer ones cost more at each call, and often repeat rules."""


def tokens_of(skill: SkillDocument) -> int:
    """Return an estimate of the skill's tokens, at least 1."""
    return max(1, round(len(skill.text) / CHARS_PER_TOKEN))


def length_warning(skill: SkillDocument) -> str:
    """Return a warning if the skill has more than MANY_TOKENS tokens, or an empty string."""
    tokens = tokens_of(skill)
    if tokens <= MANY_TOKENS:
        return ""
    return (
        f"The skill has about {tokens:,} tokens, more than {MANY_TOKENS:,}, and the target reads them at each call. "
        "Remove rules that repeat others, or train with evaluation.use_semantic_density."
    )


def density(score: float, skill: SkillDocument) -> float:
    """Return the score, a mean of the gate metric, per 1,000 tokens of the skill."""
    return 1000 * score / tokens_of(skill)


def weighted_score(score: float, skill: SkillDocument) -> float:
    """Return the score plus DENSITY_WEIGHT * d / (1 + d) for density d; unlimited, very short skills would win."""
    dense = density(score, skill)
    return score + DENSITY_WEIGHT * dense / (1 + dense)
