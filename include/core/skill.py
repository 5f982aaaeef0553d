"""The skill document: Markdown with regions that step edits may not touch."""

import re
from dataclasses import dataclass
from functools import cached_property

from include.core.errors import SkillError
from include.core.types import sha256

_MARKER = re.compile(r"<!--\s*(?P<region>SLOW_UPDATE|APPENDIX)_(?P<side>START|END)\s*-->")


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
        """Identity of the skill in keys and caches."""
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
    def editable(self) -> tuple[Span, ...]:
        """What lies before, between and behind the protected regions; may hold empty spans."""
        edges = [0, *(edge for span in self.protected for edge in (span.start, span.end)), len(self.text)]
        return tuple(Span(start, end) for start, end in zip(edges[::2], edges[1::2], strict=True))

    def find(self, anchor: str) -> Span | None:
        """The first occurrence of `anchor` that lies wholly inside editable text."""
        for span in self.editable:
            start = self.text.find(anchor, span.start, span.end)
            if start >= 0:
                return Span(start, start + len(anchor))
        return None

    def spliced(self, span: Span, text: str) -> "SkillDocument":
        """The document with the span's characters replaced by `text`."""
        return SkillDocument(self.text[: span.start] + text + self.text[span.end :])

    def protected_texts(self) -> tuple[str, ...]:
        """The protected regions' characters, markers included."""
        return tuple(self.text[span.start : span.end] for span in self.protected)

    def _line(self, position: int) -> int:
        return self.text.count("\n", 0, position) + 1


def has_marker(text: str) -> bool:
    """Whether the text holds a marker of a protected region."""
    return _MARKER.search(text) is not None
