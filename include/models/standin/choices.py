"""The stand-in on multiple choice: it picks by what a choice looks like, and by the directives of the skill."""

import re
from dataclasses import dataclass

from include.models.standin.chance import fraction
from include.models.standin.words import content_stems

_CHOICE = re.compile(r"^(?P<label>[A-Z])\. (?P<text>.+)$", re.MULTILINE)
_ASKS = "letter of the right choice"
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
        found = [Choice(match["label"], match["text"]) for match in _CHOICE.finditer(prompt)]
        if _ASKS not in prompt or len(found) < 2:
            return None
        return cls(prompt[: prompt.index(f"{found[0].label}. {found[0].text}")], tuple(found))

    def pick(self, active: frozenset[str]) -> Choice:
        """The choice with the most points; of equals the first."""
        asked = content_stems(self.text)
        longest = max(len(choice.text) for choice in self.choices)

        def points(choice: Choice) -> float:
            stems = content_stems(choice.text)
            shared = len(stems & asked) / max(1, len(stems))
            # A wildcard talks of what every question is about: which of the choices is right.
            drawn = -2.0 if "exclude_wildcard" in active else 0.45
            claims = -0.7 if "distrust_strongest" in active else 0.1
            length = 2.0 if "longest_choice" in active and len(choice.text) == longest else 0.0
            taste = 0.5 * fraction(self.text, choice.text)
            return shared + drawn * choice.wildcard + claims * min(choice.strength, 2) + length + taste

        return max(self.choices, key=points)
