"""The progress of a run, for somebody who watches it."""

from typing import Literal, NamedTuple

from skillopt_airflow.core.budget import Spent
from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.gate import GateDecision
from skillopt_airflow.core.item_scores import Metric
from skillopt_airflow.core.measured_score import SplitScore
from skillopt_airflow.core.resource_groups import BudgetGroup
from skillopt_airflow.core.timeline import MomentKind, moment_label
from skillopt_airflow.core.types import Value
from skillopt_airflow.training.estimate import EstimateTotals
from skillopt_airflow.training.spending import RoleSpending
from skillopt_airflow.training.time_left import Seconds

StageName = Literal[
    "preparation",
    "seed",
    "rollout",
    "reflection",
    "selection",
    "screen",
    "evaluation",
    "gate",
    "longitudinal",
    "slow_update",
    "meta_reflect",
    "final",
    "test",
    "report",
    "publication",
    "over",
]


class StageProgress(Value):
    """The stage that a run is at."""

    name: StageName
    moment: str
    """The name that people use, such as `Step 7`; empty outside of steps and the ends of epochs."""
    done: int | None = None
    """Rollouts that have ended; None where the stage has none. Those that other runs had stored are not among them."""
    planned: int | None = None
    """Rollouts that it takes at most: an evaluation may end early."""


class CandidateScore(NamedTuple):
    """A candidate on the selection split."""

    score: float
    """On all items that it has a score for; where nobody stored that, on those that the current skill has one for."""
    interval: tuple[float, float] | None
    """95 %, None where nobody stored it."""

    @property
    def low(self) -> float:
        """The interval's lower end; the score itself without one."""
        return self.score if self.interval is None else self.interval[0]

    @property
    def high(self) -> float:
        """The interval's upper end; the score itself without one."""
        return self.score if self.interval is None else self.interval[1]


class MomentProgress(Value):
    """A moment that the gate has decided on."""

    name: str
    """See `Moment.name`."""
    kind: MomentKind
    step: int
    """Number of steps taken when it was over."""
    epoch: int
    decision: GateDecision
    candidate: CandidateScore | None
    """None if there was none, or it was not measured, or rejected early, or screened out."""
    score_after: float
    """Score of the current skill after the moment; nan if it was taken without a score."""
    best_score: float
    """After the moment."""
    seconds: float | None
    """Wall time since the moment before; None if an earlier one was decided again since."""

    @property
    def label(self) -> str:
        """The name that people use."""
        return moment_label(self.kind, self.step, self.epoch)


class Progress(Value):
    """A run as far as it is."""

    benchmark: str
    run: str
    began: str
    """UTC, ISO 8601."""
    config: TrainConfig
    total_steps: int
    """The number of steps that it was to have."""
    stage: StageProgress
    seed: SplitScore | None = None
    """The skill that the run began with on the selection split; None before that was measured."""
    current: SplitScore | None = None
    best: SplitScore | None = None
    moments: tuple[MomentProgress, ...] = ()
    spent: Spent
    roles: tuple[RoleSpending, ...]
    """Only of those that were asked."""
    estimate: EstimateTotals | None = None
    left: Seconds | None = None
    """Wall time to its end, a person's approval apart; None before the first step has ended, and when it is over."""
    stopped: str = ""
    """The reason why it stopped before its end, or empty."""
    published: str = ""
    """The version that it published, or empty."""
    withheld: str = ""
    """The reason why it published nothing, or empty."""

    @property
    def steps(self) -> int:
        """Steps taken."""
        return max((moment.step for moment in self.moments if moment.kind == "step"), default=0)

    @property
    def standin(self) -> bool:
        """True if the offline stand-in, which is no language model, is the target or the optimizer."""
        return any("stand-in" in str(name) for name in (self.config.model.target, self.config.model.optimizer))

    @property
    def metric(self) -> Metric:
        """The metric of all scores."""
        return self.config.evaluation.gate_metric

    @property
    def budget(self) -> BudgetGroup:
        """The limits that end the run."""
        return self.config.budget
