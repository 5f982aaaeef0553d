"""The choice among the candidates of one step that were made side by side; the gate decides on the best one alone."""

from collections.abc import Sequence
from typing import Literal

from skillopt_airflow.core.paired import SAME_MEAN
from skillopt_airflow.core.training_groups import EvaluationGroup
from skillopt_airflow.core.types import Value

Standing = Literal["measured", "rejected early", "too few scores", "nothing new"]
_ORDER: tuple[Standing, ...] = ("nothing new", "too few scores", "rejected early", "measured")


class Contender(Value):
    """One of a step's candidates when the best was chosen."""

    proposal: int
    """Its number, from 1."""
    sha256: str
    characters: int
    """Length of its text."""
    standing: Standing
    """Nothing new is a text that is measured already: the current skill's, or that of an earlier proposal."""
    score: float | None = None
    """Its mean of the gate metric on the items that current has a score for, too; None if it was not measured whole."""
    bound: float | None = None
    """After an early rejection, the most that this mean could have been."""
    current: float | None = None
    """The current skill's mean on the same items."""
    chosen: bool = False
    reason: str = ""
    """Why another one was chosen, or why it was not measured."""

    @property
    def lead(self) -> float:
        """Return its mean less the current skill's, or the most that could have been; 0 if it was not measured."""
        mean = self.score if self.bound is None else self.bound
        return 0.0 if mean is None or self.current is None else mean - self.current

    @property
    def measured(self) -> bool:
        """Return whether its scores say that it is better, or not, than the current skill."""
        return self.standing in ("measured", "rejected early")

    @property
    def better(self) -> bool:
        """Return whether its mean is strictly better than the current skill's."""
        return self.measured and self.lead > SAME_MEAN


def choose(contenders: Sequence[Contender]) -> tuple[Contender, ...]:
    """Return all of them with the best one marked, and why the others are not: by the mean, then the shorter text.

    Of equally long ones the first is chosen, and the first of all if none holds anything new. One with too few scores
    gives way to any other that was measured.
    """
    best = max(contenders, key=_merit)
    return tuple(
        one.model_copy(update={"chosen": one is best, "reason": one.reason if one is best else _reason(one, best)})
        for one in contenders
    )


def rules_among(rules: EvaluationGroup, contenders: Sequence[Contender]) -> EvaluationGroup:
    """Return the gate's rules for the best of so many: its level is divided by the number of different candidates."""
    return at_level_of(rules, sum(one.standing != "nothing new" for one in contenders))


def at_level_of(rules: EvaluationGroup, candidates: int) -> EvaluationGroup:
    """Return the rules at the level of Bonferroni's correction for the choice among so many candidates."""
    return rules.model_copy(update={"gate_alpha": rules.gate_alpha / max(1, candidates)})


def _merit(one: Contender) -> tuple[int, float, int, int]:
    # The means of floats that should be equal differ far behind the ninth digit.
    return _ORDER.index(one.standing), round(one.lead, 9), -one.characters, -one.proposal


def _reason(one: Contender, best: Contender) -> str:
    if one.standing == "nothing new":
        return one.reason
    if one.standing != best.standing:
        return one.standing
    *merits, length, _ = _merit(one)
    if merits != [*_merit(best)][:2]:
        return f"worse than proposal {best.proposal}"
    than = "longer than" if length < -best.characters else "as long as"
    return f"as good as proposal {best.proposal}, and {than} it"
