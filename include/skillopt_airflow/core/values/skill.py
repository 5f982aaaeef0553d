"""The skill document: Markdown with regions that step edits may not touch; and its score for its length."""

import re
from dataclasses import dataclass
from difflib import unified_diff
from functools import cached_property
from typing import Literal, get_args

from skillopt_airflow.core.errors import SkillError
from skillopt_airflow.core.values.text import flaw_of_text, plain
from skillopt_airflow.core.values.types import sha256

Region = Literal["SLOW_UPDATE", "APPENDIX"]
REGIONS: tuple[Region, ...] = get_args(Region)
_MARKER = re.compile(rf"<!--\s*(?P<region>{'|'.join(REGIONS)})_(?P<side>START|END)\s*-->")


_MAX_ALIKE = 2_000
"""Characters of an anchor that is looked for leniently, which takes time with the square of its length."""
_QUOTES = ('"“”„«»', "'‘’‚`´")


def skill_name(benchmark: str) -> str:
    """Return the name of a benchmark's skill by the Agent Skills specification: a-z, 0-9 and single hyphens."""
    return re.sub(r"[^a-z0-9]+", "-", benchmark.lower()).strip("-")[:64].strip("-") or "skill"


@dataclass(frozen=True)
class Span:
    """Characters `start` up to, not including, `end` of a document."""

    start: int
    end: int


@dataclass(frozen=True)
class SkillDocument:
    """A skill's text; equal texts are equal skills.

    A protected region reaches from its START marker to its END marker, both included.
    """

    text: str

    @cached_property
    def sha256(self) -> str:
        return sha256(self.text)

    @cached_property
    def protected(self) -> tuple[Span, ...]:
        """The protected regions in document order.

        Raises:
            SkillError: a marker is doubled, or its partner is missing or inside another region.
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
                raise SkillError(f"skill, line {self._line(marker.start())}: {marker[0]} is doubled or has no partner")
        if opened is not None:
            raise SkillError(f"skill, line {self._line(opened.start())}: {opened[0]} has no END")
        return tuple(spans)

    @property
    def body(self) -> str:
        return self.text[: self.editable[0].end]

    def region(self, name: str) -> str | None:
        """Return the text inside a protected region without the line ends at its markers; None if there is none."""
        inside = self.region_span(name)
        return None if inside is None else self.text[inside.start : inside.end].removeprefix("\n").removesuffix("\n")

    def region_span(self, name: str) -> Span | None:
        """Return the characters between a region's markers."""
        for span in self.protected:
            markers = list(_MARKER.finditer(self.text, span.start, span.end))
            if markers[0]["region"] == name:
                return Span(markers[0].end(), markers[-1].start())
        return None

    def with_region(self, name: Region, inside: str) -> "SkillDocument":
        """Return the document with this text in the region, which is added at the end if there is none.

        Raises:
            SkillError: the text holds a marker.
        """
        if has_marker(inside):
            raise SkillError(f"the text for region {name} holds a marker of a protected region; leave it out")
        return self.spliced(*self.region_splice(name, inside))

    def region_splice(self, name: str, inside: str) -> tuple[Span, str]:
        """Return the characters that `with_region` replaces, and their replacement."""
        present, lines = self.region_span(name), f"\n{inside}\n" if inside else "\n"
        if present is not None:
            unchanged = self.region(name) == inside
            return present, self.text[present.start : present.end] if unchanged else lines
        end = len(self.text.rstrip("\n"))
        lead = "\n\n" if end else ""
        return Span(end, len(self.text)), f"{lead}<!-- {name}_START -->{lines}<!-- {name}_END -->\n"

    @property
    def editable(self) -> tuple[Span, ...]:
        """The text before, between and after the protected regions; may hold empty spans."""
        edges = [0, *(edge for span in self.protected for edge in (span.start, span.end)), len(self.text)]
        return tuple(Span(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True))

    def find(self, anchor: str) -> Span | None:
        """Return the first occurrence of `anchor` that lies wholly inside editable text.

        Without an exact one, it's the first that differs only in whitespace or typographic quotes.
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
        """The protected regions' characters by name, markers included, in document order."""
        texts = [self.text[span.start : span.end] for span in self.protected]
        return {marker["region"]: text for text in texts if (marker := _MARKER.match(text)) is not None}

    def _line(self, position: int) -> int:
        return self.text.count("\n", 0, position) + 1


def skill_of_person(text: str, where: str) -> SkillDocument:
    """Return the plain text of a person's file or key as a skill; raise SkillError where it has a flaw."""
    if flaw := flaw_of_text(plain(text)):
        raise SkillError(f"{where}: the skill {flaw}. Remove it.")
    return SkillDocument(plain(text))


def _alike(character: str) -> str:
    return next((f"[{kind}]" for kind in _QUOTES if character in kind), re.escape(character))


def has_marker(text: str) -> bool:
    return _MARKER.search(text) is not None


def before_markers(text: str) -> str:
    marker = _MARKER.search(text)
    return text if marker is None else text[: marker.start()]


def without_markers(text: str) -> str:
    """Return the text without the markers of protected regions."""
    # What stood around a marker can form another one.
    while has_marker(text):
        text = _MARKER.sub("", text)
    return text


def diff_of(before: str, after: str) -> str:
    """Return the unified diff of two skills with three lines of context, without file names; empty if equal."""
    lines = unified_diff(before.split("\n"), after.split("\n"), lineterm="")
    return "\n".join(list(lines)[2:])


CHARS_PER_TOKEN = 4
"""Characters of a token in English text, roughly; other languages and code have fewer."""

DENSITY_WEIGHT = 0.05
"""Half of it is added to a score of 1 with 1,000 tokens."""
MANY_TOKENS = 2_000
"""The paper's skills stay below; a longer one costs at each call, and often says a thing twice."""
_TOO_LONG = (
    "The skill has about {tokens:,} tokens, more than {most:,}, and the target reads them at each call. "
    "Remove rules that repeat others, or train with evaluation.use_semantic_density."
)


def tokens_of(skill: SkillDocument) -> int:
    """Return roughly how many tokens the skill has, at least 1."""
    return max(1, round(len(skill.text) / CHARS_PER_TOKEN))


def length_warning(skill: SkillDocument) -> str:
    """Return the warning that a skill has more than MANY_TOKENS tokens; empty if it has not."""
    tokens = tokens_of(skill)
    return _TOO_LONG.format(tokens=tokens, most=MANY_TOKENS) if tokens > MANY_TOKENS else ""


def density(score: float, skill: SkillDocument) -> float:
    """Return the score, a mean of the gate metric, for each 1,000 tokens of the skill."""
    return 1000 * score / tokens_of(skill)


def weighed(score: float, skill: SkillDocument) -> float:
    """Return the score plus up to DENSITY_WEIGHT for density d, which counts as d / (1 + d).

    Without that limit a skill of a few words would win whatever it scores.
    """
    dense = density(score, skill)
    return score + DENSITY_WEIGHT * dense / (1 + dense)
