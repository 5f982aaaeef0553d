"""The history of a run as values: a row per moment, the test, the costs, and what was published."""

from typing import NamedTuple

from pydantic import Field

from skillopt_airflow.core.config.resource_groups import BudgetGroup
from skillopt_airflow.core.config.train_config import StatedScores
from skillopt_airflow.core.gate.decision import Action, GateDecision
from skillopt_airflow.core.gate.item_scores import Metric
from skillopt_airflow.core.gate.measured_score import SplitScore
from skillopt_airflow.core.gate.run_gates import SmallestGain
from skillopt_airflow.core.run.budget import StageCost
from skillopt_airflow.core.run.timeline import MomentKind, moment_label
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.edits import EditReport
from skillopt_airflow.core.values.failure_reasons import RolloutTally
from skillopt_airflow.core.values.types import FailurePattern, Split, Value


class StepSeconds(Value):
    """The wall seconds of a moment, from the end of the one before to its own.

    Where a gate was decided again behind what followed it, the moment after it is counted from its own first task.
    """

    wall: float = 0.0
    model: float = 0.0
    container: float = 0.0
    own: float = 0.0
    airflow: float = 0.0
    """Time in which no task's body ran: scheduling, starting processes, parsing."""


class MomentHistory(Document):
    """One gated moment, as its gate stores it; scores are means of the gate metric on the selection split."""

    name: str
    """See `Moment.name`."""
    kind: MomentKind
    step: int
    """Number of steps taken when it was over."""
    epoch: int
    decision: GateDecision
    candidate: SplitScore | None
    """None if the candidate equals the current skill, has no score or was rejected early: see the decision's
    bound."""
    score_after: float | None
    """Score of the current skill after the moment; None if it was taken without a score."""
    best_score: float
    """After the moment."""
    skill_version: int
    """Current version after the moment."""
    edits: tuple[EditReport, ...]
    diff: str
    """From the skill before to the candidate; empty if they are equal."""
    failure_patterns: tuple[FailurePattern, ...] = ()
    fallbacks: tuple[str, ...]
    """Each optimizer answer that gave way to a deterministic rule, as `<stage>: why`."""
    cancelled: int
    """Rollouts of the selection split that an early rejection saved."""
    ended: float = 0.0
    """Unix seconds."""
    seconds: StepSeconds = StepSeconds()

    @property
    def action(self) -> Action:
        return self.decision.action

    @property
    def label(self) -> str:
        return moment_label(self.kind, self.step, self.epoch)

    @property
    def edits_applied(self) -> int:
        return sum(edit.status != "skipped" for edit in self.edits)


class RolloutCounts(Value):
    """Numbers of the rollouts that the run planned, by what became of them."""

    planned: int = 0
    ran: int = 0
    """Carried out by this run, retries included."""
    cancelled: int = 0
    """Left out because the candidate was rejected early."""
    speculated: int = 0
    """Carried out for a batch before it was known under which skill it would run."""
    wasted: int = 0
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
    split: Split
    """Split on which it passed the publish gate."""
    look: int
    """Number of that look at these items."""


class CandidateCounts(NamedTuple):
    """Numbers of a run's candidates."""

    accepted: int
    made: int
    ungated: int
    """Those of the accepted that were taken without the gate."""


class History(Document):
    """A run as far as it has come; the rows of its gates, and what its other documents say of it as a whole."""

    benchmark: str
    run: str
    created: str
    """UTC, ISO 8601."""
    target: str
    optimizer: str
    metric: Metric
    gate_policy: str
    total_steps: int
    """The number of steps that the run was to have; see stopped."""
    init_skill: str = "seed"
    """The skill that it began with: seed, a published version, or what the user named it."""
    stated: StatedScores | None = None
    """Scores that the authors of the run's preset state."""
    smallest_gains: tuple[SmallestGain, ...] = ()
    """Minimum detectable gains of the gates."""
    val_items: int
    """Items of the selection split."""
    test_items: int
    val_groups: int | None = None
    """Groups that the items of the selection split come from; None if none was named."""
    test_groups: int | None = None
    budget: BudgetGroup = BudgetGroup()
    seed: SplitScore
    """The skill that the run began with, on the selection split."""
    best: SplitScore
    """The best skill, on the selection split; version 0 is the seed."""
    stopped: str = ""
    """The reason why the run stopped before its end, or empty."""
    moments: tuple[MomentHistory, ...]
    """The moments in order, without the seed's measurement and the run's end."""
    costs: tuple[StageCost, ...]
    """Costs that this run paid, by stage, in the order in which the stages began."""
    test: dict[str, SplitScore] = Field(default_factory=dict)
    """The seed, the best and the last skill on the test split, and by `epoch 1` and so on each epoch's last one where
    evaluation.eval_test asks for it; empty if that was not measured."""
    test_looks: int | None = None
    """Comparisons that were ever made on these items to publish something; None if nobody counted."""
    rollouts: RolloutCounts = RolloutCounts()
    """Counted when the run has ended."""
    outcomes: tuple[StageRollouts, ...] = ()
    """Of each stage, in the order in which the stages are planned; an item that was tried again counts as it ended."""
    published: Publication | None = None
    withheld: str = ""
    """The reason why nothing was published, or empty."""

    @property
    def steps(self) -> tuple[MomentHistory, ...]:
        return tuple(moment for moment in self.moments if moment.kind == "step")

    @property
    def candidates(self) -> CandidateCounts:
        """Their numbers; edits that all missed make none, and neither does an epoch's end with a memory only."""
        decisions = [moment.decision for moment in self.moments]
        made = [decision for decision in decisions if not (decision.memory_only or decision.equal)]
        accepted = sum(decision.action.accepted for decision in made)
        return CandidateCounts(accepted, len(made), sum(decision.ungated for decision in made))

    def calls(self, role: str) -> int:
        return sum(cost.calls for cost in self.costs if cost.role == role)
