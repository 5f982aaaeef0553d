"""The stand-in on multiple choice: it picks by what a choice looks like, and by the directives of the skill."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import ascii_uppercase

from local.standin.chance import fraction
from local.standin.directive import LEAVE_OUT, PREFER, Directive, directive
from local.standin.stage_request import SeenTrajectory
from local.standin.subject import Active, Subject, Tool, Verdict
from local.standin.words import content_stems

_EXPECTED = re.compile(r"^expected (?P<label>[A-Z])\b")
_LETTERED = re.compile(r"^(?P<label>[A-Z])\. ", re.MULTILINE)
_ASKS = re.compile(r"\n\s*\n.*\bletter of the right choice\b")
_STRONG = re.compile(
    r"\b(?:every|all|always|exactly|only if|if and only if|unique|never|each|no matter)\b|\\forall|\\iff", re.IGNORECASE
)
_WILDCARD = re.compile(
    r"\b(?:another|others|remaining|rest|none)\b.{0,40}\b(?:correct|right|true|above)\b", re.IGNORECASE
)
_CHOICE = r"(?:choices?|options?)"
_SET_ASIDE = rf"(?:{LEAVE_OUT}|\b(?:leav(?:e|ing)|set(?:ting)?|put(?:ting)?) aside)"
_DISTRUST = r"\b(?:distrust|mistrust|suspect|doubt|beware of|be (?:wary|suspicious|sceptical|skeptical) of)\b"
ON_CHOICES = (
    directive(
        "distrust_strongest",
        [
            rf"{_DISTRUST}.{{0,40}}\b(?:claims? (?:the )?(?:more|most|too much)|strongest|boldest|most sweeping)\b",
            rf"{PREFER}.{{0,40}}\b(?:weaker|weakest|more cautious|most cautious)\b.{{0,24}}\b{_CHOICE}\b",
        ],
        [
            "Distrust a choice that claims more than the others: a theorem seldom gives all that one could wish for.",
            "Be wary of the strongest option, it often drops a condition that the result needs.",
        ],
        "The wrong choices claimed more than the expected one.",
    ),
    directive(
        "exclude_wildcard",
        [
            rf"{_SET_ASIDE}.{{0,40}}\b{_CHOICE}\b.{{0,60}}\b(?:another|other|others|remaining|rest)\b"
            r".{0,24}\b(?:right|correct|true)\b",
            rf"{_SET_ASIDE}.{{0,24}}\b(?:wild ?cards?|none of the above)\b",
        ],
        [
            "Leave aside choices that only say that another one is right.",
            "Exclude an option that states nothing itself, such as that one of the rest is correct.",
        ],
        "A choice was taken that states nothing itself.",
    ),
    directive(
        "longest_choice",
        [
            rf"{PREFER}.{{0,30}}\b(?:longest|lengthiest|most detailed) {_CHOICE}\b",
            rf"{PREFER}.{{0,20}}\b{_CHOICE}\b.{{0,20}}\bmost (?:words|details?)\b",
        ],
        [
            "Pick the longest choice, it was written with the most care.",
            "Prefer the option with the most details.",
        ],
        "A correct statement needs more words than a wrong one.",
        tempting=True,
    ),
)


@dataclass(frozen=True)
class Choice:
    """One of the statements."""

    label: str
    text: str

    @property
    def strength(self) -> int:
        """Return how many words of it claim much."""
        return len(_STRONG.findall(self.text))

    @property
    def wildcard(self) -> bool:
        """Return whether it states nothing itself."""
        return _WILDCARD.search(self.text) is not None


@dataclass(frozen=True)
class Question:
    """A multiple-choice request."""

    text: str
    choices: tuple[Choice, ...]

    @classmethod
    def of_prompt(cls, prompt: str) -> "Question | None":
        """Return the question of a user message, or None if it offers no choices."""
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

    def pick(self, active: Active) -> Choice:
        """Return the choice with the most points; of equals the first."""
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
    """Return where the choices begin: lines with a letter and a point, in alphabetical order.

    Question and choices may have several lines, and some of these a letter and a point that are none of a choice.
    """
    starts: list[re.Match[str]] = []
    for found in _LETTERED.finditer(text):
        if found["label"] == ascii_uppercase[0] and len(starts) < 2:
            starts = [found]
        elif len(starts) < len(ascii_uppercase) and found["label"] == ascii_uppercase[len(starts)]:
            starts.append(found)
    return starts


@dataclass(frozen=True)
class ChoiceCase:
    """A multiple-choice trajectory and the letter that was expected."""

    item_id: str
    question: Question
    expected: str

    def verdict(self, active: Active) -> Verdict:
        """Return whether the expected letter is picked."""
        right = self.question.pick(active).label == self.expected
        return Verdict(right, float(right))


class Choices(Subject):
    """Questions with lettered choices; the feedback on them names a label and not a phrase."""

    directives: Sequence[Directive] = ON_CHOICES
    empty_advice: Sequence[tuple[str, str]] = (
        ("Read the statement to its end before you decide.", "A hasty reading may miss a condition."),
        ("Stay with what worked: one statement, one letter.", "The rollouts that went well gave one letter."),
    )
    tools: Mapping[str, Tool] = {}

    def speaks_of(self, prompt: str) -> bool:
        """Return whether the prompt offers choices."""
        return Question.of_prompt(prompt) is not None

    def respond(self, active: Active, prompt: str, pictures: Sequence[bytes]) -> str:
        """Return one line on how the letter was found, then the letter."""
        question = Question.of_prompt(prompt)
        if question is None:
            return ""
        picked = question.pick(active)
        return f"{picked.label} looks best among {len(question.choices)} choices.\n<answer>{picked.label}</answer>"

    def shown_by(self, trajectory: SeenTrajectory) -> bool:
        """Return whether the feedback names a letter."""
        return _EXPECTED.match(trajectory.feedback) is not None

    def case(self, trajectory: SeenTrajectory) -> ChoiceCase | None:
        """Return the question with the expected letter."""
        question, expected = Question.of_prompt(trajectory.prompt), _EXPECTED.match(trajectory.feedback)
        return ChoiceCase(trajectory.item_id, question, expected["label"]) if question and expected else None


STANDIN = Choices()
