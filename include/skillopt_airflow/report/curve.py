"""The values of the learning curve: of a run that is over, or the part of one that goes on."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from skillopt_airflow.core.gate import GateDecision
from skillopt_airflow.core.timeline import MomentKind


class CurveScore(Protocol):
    """A mean of the gate metric with its 95 % interval."""

    @property
    def score(self) -> float:
        """The mean."""

    @property
    def low(self) -> float:
        """Lower end of the interval."""

    @property
    def high(self) -> float:
        """Upper end of the interval."""


class CurveMoment(Protocol):
    """A moment that the gate has decided on."""

    @property
    def kind(self) -> MomentKind:
        """A step, or a part of an epoch's end."""

    @property
    def step(self) -> int:
        """Number of steps taken when it was over."""

    @property
    def epoch(self) -> int:
        """1-based."""

    @property
    def decision(self) -> GateDecision:
        """The verdict."""

    @property
    def candidate(self) -> CurveScore | None:
        """On the selection split; None if it was not measured as a whole."""

    @property
    def score_after(self) -> float:
        """Score of the current skill after the moment; nan if it was taken without a score."""

    @property
    def best_score(self) -> float:
        """Score of the best skill after the moment."""


class Curve(NamedTuple):
    """The scores of a run."""

    metric: str
    seed: CurveScore
    """The skill that the run began with, on the selection split."""
    best: CurveScore
    moments: Sequence[CurveMoment]
    test: Mapping[str, CurveScore]
    """Skills by name on the test split; empty if that was not measured."""


class Accepted(NamedTuple):
    """Numbers of a run's candidates."""

    accepted: int
    candidates: int
    ungated: int
    """Those of the accepted that were taken without the gate."""


def accepted_of(moments: Sequence[CurveMoment]) -> Accepted:
    """Count the candidates.

    A moment whose edits all missed has none, and neither has an epoch's end that left a memory alone.
    """
    decisions = [moment.decision for moment in moments]
    made = [decision for decision in decisions if not (decision.memory_only or decision.equal)]
    accepted = sum(decision.action.accepted for decision in made)
    return Accepted(accepted, len(made), sum(decision.ungated for decision in made))
