"""The stand-in on multiple choice: it picks by what a choice looks like, and by the directives of the skill."""

import re
from dataclasses import dataclass
from string import ascii_uppercase

from local.standin.chance import fraction
from local.standin.words import content_stems

_LETTERED = re.compile(r"^(?P<label>[A-Z])\. ", re.MULTILINE)
_ASKS = re.compile(r"\n\s*\n.*\bletter of the right choice\b")
_STRONG = re.compile(
    r"\b(?:every|all|always|exactly|only if|if and only if|unique|never|each|no matter)\b|\\forall|\\iff", re.IGNORECASE
)
_WILDCARD = re.compile(
    r"\b(?:another|others|remaining|rest|none)\b.{0,40}\b(?:correct|right|true|above)\b", re.IGNORECASE
)


@dataclass(frozen=True)
class Choice:
    """One of the statements."""

    label: str
    text: str

    @property
    def strength(self) -> int:
        """How many words of it claim much."""
        return len(_STRONG.findall(self.text))

    @property
    def wildcard(self) -> bool:
        """Whether it states nothing itself."""
        return _WILDCARD.search(self.text) is not None


@dataclass(frozen=True)
class Question:
    """A multiple-choice request."""

    text: str
    choices: tuple[Choice, ...]

    @classmethod
    def of_prompt(cls, prompt: str) -> "Question | None":
        """The question of a user message, or None if it offers no choices."""
        asks = _ASKS.search(prompt)
        starts = _starts(prompt[: asks.start()]) if asks else []
        if asks is None or len(starts) < 2:
            return None
        ends = [start.start() for start in starts[1:]] + [asks.start()]
        choices = (
            Choice(start["label"], " ".join(prompt[start.end() : end].split()))
            for start, end in zip(starts, ends, strict=True)
        )
        return cls(prompt[: starts[0].start()], tuple(choices))

    def pick(self, active: frozenset[str]) -> Choice:
        """The choice with the most points; of equals the first."""
        asked = content_stems(self.text)
        longest = max(len(choice.text) for choice in self.choices)

        def points(choice: Choice) -> float:
            stems = content_stems(choice.text)
            shared = len(stems & asked) / max(1, len(stems))
            # A wildcard talks of what every question is about: which of the choices is right.
            drawn = -2.0 if "exclude_wildcard" in active else 0.7
            claims = -0.7 if "distrust_strongest" in active else 0.03
            length = 2.0 if "longest_choice" in active and len(choice.text) == longest else 0.0
            taste = 0.4 * fraction(self.text, choice.text)
            return shared + drawn * choice.wildcard + claims * min(choice.strength, 2) + length + taste

        return max(self.choices, key=points)


def _starts(text: str) -> list[re.Match[str]]:
    """Where the choices begin: lines with a letter and a point, in alphabetical order.

    Question and choices may have several lines, and some of these a letter and a point that are none of a choice.
    """
    starts: list[re.Match[str]] = []
    for found in _LETTERED.finditer(text):
        if found["label"] == ascii_uppercase[0] and len(starts) < 2:
            starts = [found]
        elif len(starts) < len(ascii_uppercase) and found["label"] == ascii_uppercase[len(starts)]:
            starts.append(found)
    return starts
