"""What the report of a run shows, as values; scores are means of the metric that the gate compares."""

from difflib import unified_diff
from typing import Literal

from pydantic import Field, model_validator

from skillopt_airflow.core.budget import StageCost
from skillopt_airflow.core.edits import EditReport
from skillopt_airflow.core.gate import GateDecision
from skillopt_airflow.core.item_scores import Metric
from skillopt_airflow.core.provenance import LineOrigin
from skillopt_airflow.core.timeline import MomentKind
from skillopt_airflow.core.types import FailurePattern, Value


class Estimate(Value):
    """A skill's mean score on a split with its 95 % interval."""

    mean: float
    low: float
    high: float
    items: int = Field(ge=0)
    """Items that were meant to be scored."""
    coverage: float
    """Share of them that has a score."""


class Seconds(Value):
    """Wall seconds of a moment, from the end of the one before to its own, and what they went into."""

    wall: float
    model: float
    container: float
    own: float
    airflow: float
    """In which no task's body ran: scheduling, starting processes, parsing."""


class MomentView(Value):
    """A step, or a part of an epoch's end: what it tried, and what came of it."""

    name: str
    """As core.timeline.Moment has it, such as `steps/step_0007`."""
    kind: MomentKind
    epoch: int
    step: int
    """Steps taken when it was over."""
    decision: GateDecision
    candidate: Estimate | None
    """On the selection split; None if it was not measured, or rejected early: then decision.bound is not None."""
    current_score: float
    """Of the current skill after the moment; nan if it was taken without a score."""
    best_score: float
    """Of the best skill after the moment."""
    version: int
    """Of the current skill after the moment."""
    edits: tuple[EditReport, ...]
    diff: str
    """From the skill before to the candidate, as `diff_of` makes it; empty if they are equal."""
    failure_patterns: tuple[FailurePattern, ...] = ()
    fallbacks: tuple[str, ...] = ()
    """Where an optimizer's answer gave way to a deterministic rule, as `<stage>: why`."""
    seconds: Seconds

    @property
    def label(self) -> str:
        """What people call it."""
        if self.kind == "step":
            return f"Step {self.step}"
        return f"{self.kind.replace('_', ' ').capitalize()}, epoch {self.epoch}"

    @property
    def slug(self) -> str:
        """Its anchor on the page."""
        return self.name.replace("/", "-")


class TestMark(Value):
    """One of the skills that were measured on the test split."""

    __test__ = False  # no test class, though pytest would take it for one

    name: Literal["seed", "best", "last"]
    version: int
    score: Estimate


class RolloutCounts(Value):
    """What became of the rollouts that the run planned."""

    ran: int
    """Carried out by this run, tries again included."""
    reused: int
    """Taken from the store: of another run, another step, or an attempt before."""
    cancelled: int
    """Left out because an early rejection was certain without them."""
    speculated: int
    """Carried out for a batch before it was known under which skill it would run."""
    wasted: int
    """Of these, those whose skill had gone by then."""


class ReportView(Value):
    """All that the page needs."""

    benchmark: str
    run: str
    target: str
    optimizer: str
    standin: bool
    """Whether the offline stand-in, which is no language model, was the target or the optimizer."""
    created: str
    """UTC, ISO 8601."""
    metric: Metric
    gate_policy: str
    total_steps: int
    """That the run was to have; see stopped."""
    stopped: str
    """Why the run stopped before its end, or empty."""
    published: str
    """The version that the run published, such as `v0003-0123456789ab`, or empty."""
    withheld: str = ""
    """Why it published nothing, or empty."""
    seed: Estimate
    """The seed skill on the selection split."""
    best: Estimate
    """The best skill on the selection split."""
    best_version: int
    """0 is the seed."""
    moments: tuple[MomentView, ...]
    """In the order of the run, without the seed's measurement and the run's end."""
    test: tuple[TestMark, ...]
    """Empty if the run measured none."""
    skill: str
    """Text of the best skill."""
    lines: tuple[LineOrigin, ...]
    """The origin of each of `skill.split("\\n")`."""
    costs: tuple[StageCost, ...]
    """What the run paid for, by stage, in the order in which the stages began."""
    rollouts: RolloutCounts

    @model_validator(mode="after")
    def _an_origin_for_each_line(self) -> "ReportView":
        if len(self.lines) != self.skill.count("\n") + 1:
            raise ValueError(f"the skill has {self.skill.count(chr(10)) + 1} lines, and {len(self.lines)} origins")
        return self

    @property
    def steps(self) -> tuple[MomentView, ...]:
        """The moments that are steps."""
        return tuple(moment for moment in self.moments if moment.kind == "step")

    @property
    def fallbacks(self) -> int:
        """How often an optimizer's answer gave way to a deterministic rule."""
        return sum(len(moment.fallbacks) for moment in self.moments)


def diff_of(before: str, after: str) -> str:
    """Unified diff of two skills with three lines of context, without the file names; empty if they are equal."""
    lines = unified_diff(before.split("\n"), after.split("\n"), lineterm="")
    return "\n".join(list(lines)[2:])
