"""Counterfactuals: what the reader would have answered to the same text with one directive toggled."""

from collections.abc import Sequence
from dataclasses import dataclass

from local.standin.directives import DIRECTIVES, ON_DOCUMENTS
from local.standin.exercise import Candidate, Exercise
from local.standin.ranking import rank
from local.standin.reader import phrase
from local.standin.stage_request import SeenTrajectory
from local.standin.subject import Active, Case, Verdict
from local.standin.subjects import subject_of
from local.standin.words import key, without_possessive

_OF_DOCUMENTS = frozenset(directive.name for directive in ON_DOCUMENTS)


@dataclass(frozen=True)
class Toggle:
    """A directive switched over, with what the answers of a minibatch would have gained by it."""

    name: str
    gain: float
    """Answers put right less answers spoilt, plus half of the change in reciprocal rank of the expected phrase."""
    fixed: tuple[str, ...]
    """Ids of the items that it puts right."""


def toggles(trajectories: Sequence[SeenTrajectory], active: Active) -> list[Toggle]:
    """Return every directive toggled against the skill's own, the most helpful first."""
    cases = [case for trajectory in trajectories if (case := _case(trajectory)) is not None]
    before = [case.verdict(active) for case in cases]
    tried = [_toggle(name, cases, before, active ^ {name}) for name in DIRECTIVES]
    return sorted(tried, key=lambda toggle: (-toggle.gain, toggle.name))


def _toggle(name: str, cases: Sequence[Case], before: Sequence[Verdict], active: Active) -> Toggle:
    gain, fixed = 0.0, []
    for case, old in zip(cases, before, strict=True):
        new = case.verdict(active)
        gain += (new.right - old.right) + 0.5 * (new.reciprocal_rank - old.reciprocal_rank)
        if new.right > old.right:
            fixed.append(case.item_id)
    return Toggle(name, gain, tuple(fixed))


def _case(trajectory: SeenTrajectory) -> Case | None:
    subject = subject_of([trajectory])
    if subject is not None:
        return subject.case(trajectory)
    expected = trajectory.references
    return _DocumentsCase(trajectory, expected) if expected else None


class _DocumentsCase:
    """A trajectory's text, parsed once, and the answers that were expected."""

    def __init__(self, trajectory: SeenTrajectory, expected: Sequence[str]) -> None:
        self.item_id = trajectory.item_id
        self.exercise = Exercise.of_prompt(trajectory.prompt)
        self.expected = frozenset(map(key, expected))
        self._verdicts: dict[Active, Verdict] = {}

    def verdict(self, active: Active) -> Verdict:
        """Return whether the answer is an expected one, and how high the first of them ranks."""
        heard = active & _OF_DOCUMENTS
        if heard not in self._verdicts:
            self._verdicts[heard] = self._verdict(heard)
        return self._verdicts[heard]

    def _verdict(self, active: Active) -> Verdict:
        ranked = rank(self.exercise, active)
        if not ranked:
            return Verdict(right=False, reciprocal_rank=0.0)
        right = key(phrase(self.exercise, ranked, active)) in self.expected
        return Verdict(right, self._reciprocal_rank(ranked, "possessive" in active))

    def _reciprocal_rank(self, ranked: Sequence[Candidate], plain: bool) -> float:
        for place, candidate in enumerate(ranked[:50], start=1):
            name = key(without_possessive(candidate.spelling)) if plain else candidate.key
            if name in self.expected:
                return 1.0 / place
        return 0.0
