"""The history of a run: its moments, test scores, costs and publication."""

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
    """The wall time of a moment in seconds, from the end of the previous moment to its own end.

    If a gate was decided again after later moments had started, the next moment counts from its own first task.
    """

    wall: float = 0.0
    model: float = 0.0
    container: float = 0.0
    own: float = 0.0
    airflow: float = 0.0
    """Time outside of task bodies: scheduling, starting processes, parsing."""


class MomentHistory(Document):
    """One gated `Moment` as stored; scores are means of the gate metric on the selection split."""

    name: str
    kind: MomentKind
    step: int
    epoch: int
    decision: GateDecision
    candidate: SplitScore | None
    """None if the candidate equals the current skill, has no score, or was rejected early (`decision.bound`)."""
    score_after: float | None
    """Score after the moment, like `best_score`, of skill `skill_version`; None if it was accepted without a score."""
    best_score: float
    skill_version: int
    edits: tuple[EditReport, ...]
    diff: str
    """Difference from the previous skill to the candidate; empty if they are equal."""
    failure_patterns: tuple[FailurePattern, ...] = ()
    fallbacks: tuple[str, ...]
    """Optimizer answers that a deterministic rule replaced, as `<stage>: <reason>`."""
    cancelled: int
    """Rollouts of the selection split that early rejection saved."""
    ended: float = 0.0
    """Unix time in seconds."""
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
    """Numbers of the run's planned rollouts by outcome."""

    planned: int = 0
    ran: int = 0
    """Carried out by this run, including retries."""
    cancelled: int = 0
    """Saved by early rejection."""
    speculated: int = 0
    """Carried out for a batch before its skill was certain."""
    wasted: int = 0
    """Speculated rollouts with a skill that was replaced."""
    reused: int = 0
    """Read from the store: rollouts of another run or step."""


class StageRollouts(RolloutTally):
    """Outcomes of the run's own rollouts in one stage."""

    stage: str
    """For example seed, rollout, evaluate, test."""


class Publication(Value):
    """The version that a run published, with the split and the look of its publish gate."""

    version: str
    sha256: str
    key: str
    """URL of best_skill.md."""
    created: bool
    """False if the same skill was already the champion."""
    split: Split
    look: int


class CandidateCounts(NamedTuple):
    """Numbers of a run's candidates; `ungated` ones were accepted without the gate."""

    accepted: int
    made: int
    ungated: int


class History(Document):
    """A run so far: its moments, and totals from its other documents."""

    benchmark: str
    run: str
    created: str
    """UTC, ISO 8601."""
    target: str
    optimizer: str
    metric: Metric
    gate_policy: str
    total_steps: int
    """The planned number of steps; see stopped."""
    init_skill: str = "seed"
    """The initial skill: seed, a published version, or the user's name for it."""
    stated: StatedScores | None = None
    """Published scores for the run's preset."""
    smallest_gains: tuple[SmallestGain, ...] = ()
    val_items: int
    test_items: int
    val_groups: int | None = None
    """Number of groups in the selection split; None if items have no groups."""
    test_groups: int | None = None
    budget: BudgetGroup = BudgetGroup()
    seed: SplitScore
    """The initial skill on the selection split, as the best one; version 0 is the seed."""
    best: SplitScore
    stopped: str = ""
    """The reason why the run stopped before its end, or empty."""
    moments: tuple[MomentHistory, ...]
    """The moments in order, without the seed's measurement and the run's end."""
    costs: tuple[StageCost, ...]
    """This run's costs by stage, ordered by the stages' start."""
    test: dict[str, SplitScore] = Field(default_factory=dict)
    """The seed, best and last skill on the test split, and if evaluation.eval_test is each_epoch also each epoch's last
    skill, as `epoch 1` and so on; empty if not measured."""
    test_looks: int | None = None
    """Number of all publishing looks at these items; None if unknown."""
    rollouts: RolloutCounts = RolloutCounts()
    """Counted at the end of the run."""
    outcomes: tuple[StageRollouts, ...] = ()
    """Outcomes by stage, in the order of the plan; retried items count by their last outcome."""
    published: Publication | None = None
    withheld: str = ""
    """The reason why nothing was published, or empty."""

    @property
    def steps(self) -> tuple[MomentHistory, ...]:
        return tuple(moment for moment in self.moments if moment.kind == "step")

    @property
    def candidates(self) -> CandidateCounts:
        """Counts of candidates, without those equal to the current skill and epoch ends with only a memory."""
        decisions = [moment.decision for moment in self.moments]
        made = [decision for decision in decisions if not (decision.memory_only or decision.equal)]
        accepted = sum(decision.action.accepted for decision in made)
        return CandidateCounts(accepted, len(made), sum(decision.ungated for decision in made))

    def calls(self, role: str) -> int:
        return sum(cost.calls for cost in self.costs if cost.role == role)
