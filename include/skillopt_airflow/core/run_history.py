"""The history of a run as values: a row for each moment, the test, the costs, and what was published."""

from pydantic import Field

from skillopt_airflow.core.budget import StageCost
from skillopt_airflow.core.documents import Document
from skillopt_airflow.core.gate import Action, GateDecision
from skillopt_airflow.core.item_scores import Metric
from skillopt_airflow.core.measured_score import SplitScore
from skillopt_airflow.core.rollout_tally import RolloutTally
from skillopt_airflow.core.timeline import MomentKind
from skillopt_airflow.core.types import Split, Value


class StepSeconds(Value):
    """The wall seconds of a moment, from the end of the one before to its own.

    Where a gate was decided again behind what followed it, the moment after it is counted from its own first task.
    """

    wall: float
    model: float
    container: float
    own: float
    airflow: float
    """Time in which no task's body ran: scheduling, starting processes, parsing."""


class MomentHistory(Value):
    """One gated moment; scores are means of the gate metric."""

    name: str
    """See `Moment.name`."""
    kind: MomentKind
    step: int
    """Number of steps taken when it was over."""
    epoch: int
    decision: GateDecision
    candidate_score: float | None
    """On the items that ran and that the current skill has a score for, too; None if there is none. See the decision's
    bound after an early rejection, and its candidate_mean for all items."""
    current_score: float | None
    """Score of the skill that the candidate was compared with, on all items; None if none of them has a score."""
    best_score: float
    """After the moment."""
    edits_applied: int
    edits_skipped: int
    skill_version: int
    """Current version after the moment."""
    fallbacks: tuple[str, ...]
    """Each optimizer answer that gave way to a deterministic rule, as `<stage>: why`."""
    cancelled: int
    """Rollouts of the selection split that an early rejection saved."""
    seconds: StepSeconds

    @property
    def action(self) -> Action:
        """The gate's verdict."""
        return self.decision.action


class RolloutCounts(Value):
    """Numbers of the rollouts that the run planned, by what became of them."""

    planned: int
    ran: int
    """Carried out by this run, retries included."""
    cancelled: int
    """Left out because the candidate was rejected early."""
    speculated: int
    """Carried out for a batch before it was known under which skill it would run."""
    wasted: int
    """Those of `speculated` whose skill had gone by then."""
    reused: int = 0
    """Taken from the store: of another run, or another step."""


class StageRollouts(RolloutTally):
    """Outcomes of the run's own rollouts of one stage."""

    stage: str
    """Such as seed, rollout, evaluate, test."""


class Publication(Value):
    """The version that a run published."""

    version: str
    sha256: str
    key: str
    """Address of best_skill.md."""
    created: bool
    """False if the same skill was the champion already."""
    split: Split | None = None
    """Split on which it passed the publish gate; None where that was the selection split."""
    look: int | None = None
    """Number of that look at these items."""


class History(Document):
    """The whole run."""

    benchmark: str
    run: str
    target: str
    optimizer: str
    metric: Metric
    seed_val_score: float
    best_val_score: float
    best_version: int
    """0 is the seed."""
    stopped: str
    """The reason why the run stopped before its end, or empty."""
    moments: tuple[MomentHistory, ...]
    """The moments in order, without the seed's measurement and the run's end."""
    test: dict[str, SplitScore] = Field(default_factory=dict)
    """The seed, the best and the last skill on the test split, and by `epoch 1` and so on each epoch's last one where
    evaluation.test_each_epoch asks for it; empty if that was not measured."""
    test_looks: int | None = None
    """Comparisons that were ever made on these items to publish something; None if nobody counted."""
    costs: tuple[StageCost, ...]
    """Costs that this run paid, by stage, in the order in which the stages began."""
    rollouts: RolloutCounts
    outcomes: tuple[StageRollouts, ...] = ()
    """Of each stage, in the order in which the stages are planned; an item that was tried again counts as it ended."""
    published: Publication | None = None
    withheld: str = ""
    """The reason why nothing was published, or empty."""

    @property
    def steps(self) -> tuple[MomentHistory, ...]:
        """The moments that are steps."""
        return tuple(moment for moment in self.moments if moment.kind == "step")

    def calls(self, role: str) -> int:
        """Return the number of model calls of one role."""
        return sum(cost.calls for cost in self.costs if cost.role == role)
