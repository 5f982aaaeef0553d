"""Counterfactuals: what the reader would have answered to the same text with one directive toggled."""

from collections.abc import Sequence
from dataclasses import dataclass

from local.standin.choices import Question
from local.standin.directives import DIRECTIVES
from local.standin.exercise import Candidate, Exercise
from local.standin.ranking import Active, rank
from local.standin.reader import phrase
from local.standin.requests import SeenTrajectory
from local.standin.symptoms import symptoms
from local.standin.words import key, without_possessive


@dataclass(frozen=True)
class Toggle:
    """A directive switched over, with what the answers of a minibatch would have gained by it."""

    name: str
    gain: float
    """Answers put right less answers spoilt, plus half of the change in reciprocal rank of the expected phrase."""
    fixed: tuple[str, ...]
    """Ids of the items that it puts right."""


def toggles(trajectories: Sequence[SeenTrajectory], active: Active) -> list[Toggle]:
    """Every directive toggled against the skill's own, the most helpful first."""
    cases = [case for trajectory in trajectories if (case := _case(trajectory)) is not None]
    before = [case.verdict(active) for case in cases]
    tried = [_toggle(name, cases, before, active ^ {name}) for name in DIRECTIVES]
    return sorted(tried, key=lambda toggle: (-toggle.gain, toggle.name))


def _toggle(name: str, cases: Sequence["_AnyCase"], before: Sequence["_Verdict"], active: Active) -> Toggle:
    gain, fixed = 0.0, []
    for case, old in zip(cases, before, strict=True):
        new = case.verdict(active)
        gain += (new.right - old.right) + 0.5 * (new.reciprocal_rank - old.reciprocal_rank)
        if new.right > old.right:
            fixed.append(case.item_id)
    return Toggle(name, gain, tuple(fixed))


def _case(trajectory: SeenTrajectory) -> "_AnyCase | None":
    if trajectory.subject == "workbooks":
        return _WorkbookCase(trajectory)
    question = Question.of_prompt(trajectory.prompt)
    if question is not None and trajectory.expected_label:
        return _ChoiceCase(trajectory, question)
    return _Case(trajectory) if trajectory.references else None


@dataclass(frozen=True)
class _Verdict:
    right: bool
    reciprocal_rank: float


class _ChoiceCase:
    """A multiple-choice trajectory and the letter that was expected."""

    def __init__(self, trajectory: SeenTrajectory, question: Question) -> None:
        self.item_id = trajectory.item_id
        self._question = question
        self._expected = trajectory.expected_label

    def verdict(self, active: Active) -> _Verdict:
        right = self._question.pick(active).label == self._expected
        return _Verdict(right, float(right))


class _WorkbookCase:
    """A workbook that came out wrong, and what the wrong cells point to."""

    def __init__(self, trajectory: SeenTrajectory) -> None:
        self.item_id = trajectory.item_id
        self._symptoms = symptoms(trajectory.feedback, trajectory.prompt)

    def verdict(self, active: Active) -> _Verdict:
        asked = sum((name in active) is wanted for name, wanted in self._symptoms.items())
        right = bool(self._symptoms) and asked == len(self._symptoms)
        return _Verdict(right, float(right))


class _Case:
    """A trajectory's text, parsed once, and the answers that were expected."""

    def __init__(self, trajectory: SeenTrajectory) -> None:
        self.item_id = trajectory.item_id
        self.exercise = Exercise.of_prompt(trajectory.prompt)
        self.expected = frozenset(key(reference) for reference in trajectory.references)

    def verdict(self, active: Active) -> _Verdict:
        ranked = rank(self.exercise, active)
        if not ranked:
            return _Verdict(right=False, reciprocal_rank=0.0)
        right = key(phrase(self.exercise, ranked, active)) in self.expected
        return _Verdict(right, self._reciprocal_rank(ranked, "possessive" in active))

    def _reciprocal_rank(self, ranked: Sequence[Candidate], plain: bool) -> float:
        for place, candidate in enumerate(ranked[:50], start=1):
            name = key(without_possessive(candidate.spelling)) if plain else candidate.key
            if name in self.expected:
                return 1.0 / place
        return 0.0


_AnyCase = _Case | _ChoiceCase | _WorkbookCase
