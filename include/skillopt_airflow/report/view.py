"""The report's data: the run's history, and what the page shows besides; scores are means of the gate metric."""

from collections.abc import Sequence
from difflib import unified_diff
from typing import Self

from pydantic import model_validator

from skillopt_airflow.core.edits import EditReport
from skillopt_airflow.core.measured_score import SplitScore
from skillopt_airflow.core.preset import StatedScores
from skillopt_airflow.core.provenance import LineOrigin
from skillopt_airflow.core.run_gates import SmallestGain
from skillopt_airflow.core.run_history import History, MomentHistory, StageRollouts
from skillopt_airflow.core.timeline import moment_label
from skillopt_airflow.core.types import FailurePattern
from skillopt_airflow.report.curve import Curve
from skillopt_airflow.report.item_examples import Example, Judging

MINIBATCHES_WITH_NAME = 4


class MomentView(MomentHistory):
    """A step, or a part of an epoch's end."""

    candidate: SplitScore | None
    """On the selection split; None if it was not measured, or rejected early: then decision.bound is not None."""
    score_after: float
    """Score of the current skill after the moment; nan if it was taken without a score."""
    edits: tuple[EditReport, ...]
    diff: str
    """From the skill before to the candidate, as `diff_of` makes it; empty if they are equal."""
    failure_patterns: tuple[FailurePattern, ...] = ()

    @property
    def label(self) -> str:
        """The name that people use."""
        return moment_label(self.kind, self.step, self.epoch)

    @property
    def slug(self) -> str:
        """Its anchor on the page."""
        return slug_of(self.name)


class ReportView(History):
    """Everything that the page needs."""

    created: str
    """UTC, ISO 8601."""
    gate_policy: str
    total_steps: int
    """The number of steps that the run was to have; see stopped."""
    moments: tuple[MomentView, ...]
    val_items: int
    """Items of the selection split."""
    test_items: int
    val_groups: int | None = None
    """Groups that the items of the selection split come from; None if none was named."""
    test_groups: int | None = None
    smallest_gains: tuple[SmallestGain, ...] = ()
    """What the gates could be expected to find."""
    seed: SplitScore
    """The skill that the run began with on the selection split."""
    stated: StatedScores | None = None
    """What the authors of the run's preset state."""
    init_skill: str = "seed"
    """That skill: seed, a published version, or what the user named it."""
    best: SplitScore
    """The best skill on the selection split."""
    skill: str
    """Text of the best skill."""
    judging: Judging | None = None
    """Who scored the answers; None where the rules did alone."""
    examples: tuple[Example, ...] = ()
    """Items of the selection split under the best skill."""
    lines: tuple[LineOrigin, ...]
    """The origin of each of `skill.split("\\n")`."""

    @model_validator(mode="after")
    def _an_origin_for_each_line(self) -> Self:
        if len(self.lines) != self.skill.count("\n") + 1:
            raise ValueError(f"the skill has {self.skill.count(chr(10)) + 1} lines, and {len(self.lines)} origins")
        return self

    @property
    def standin(self) -> bool:
        """True if the offline stand-in, which is no language model, was the target or the optimizer."""
        return any("stand-in" in name for name in (self.target, self.optimizer))

    @property
    def curve(self) -> Curve:
        """The values of the learning curve."""
        return Curve(self.metric, self.seed, self.best, self.moments, self.test)

    @property
    def measured(self) -> tuple[tuple[str, str, SplitScore], ...]:
        """The skills that the page compares: name, split and score."""
        selection = (("seed", "selection", self.seed), ("best", "selection", self.best))
        return (*selection, *((name, "test", score) for name, score in self.test.items()))

    @property
    def task_types(self) -> tuple[str, ...]:
        """The types of task that any of these has a score for, in alphabetical order."""
        return tuple(sorted({one.task_type for _, _, score in self.measured for one in score.by_type}))

    @property
    def troubled(self) -> tuple[StageRollouts, ...]:
        """The stages in which rollouts have no score, or answers were cut off or empty."""
        return tuple(stage for stage in self.outcomes if stage.failures or stage.truncated or stage.empty)

    @property
    def fallbacks(self) -> int:
        """The number of optimizer answers that gave way to a deterministic rule."""
        return sum(len(moment.fallbacks) for moment in self.moments)


def slug_of(moment: str) -> str:
    """Return the anchor of a moment on the report's page, by its name."""
    return moment.replace("/", "-")


def spoken_moment(moment: str) -> str:
    """Return the name that people use for a moment, such as `steps/step_0007` or `slow_update/epoch_02`."""
    kind, _, name = moment.partition("/")
    number = name.rpartition("_")[2].lstrip("0")
    if kind == "steps":
        return f"step {number}"
    return f"{kind.replace('_', ' ')}, epoch {number}" if number.isdigit() else moment


def origin_detail(op: str, minibatches: Sequence[str]) -> str:
    """Return what a line's edit did, and the minibatches that asked for it, or their number where they are many."""
    named = len(minibatches) <= MINIBATCHES_WITH_NAME
    sources = minibatches if named else (f"{len(minibatches)} minibatches",)
    return ", ".join(part for part in (op.replace("_", " "), *sources) if part)


def diff_of(before: str, after: str) -> str:
    """Return the unified diff of two skills with three lines of context, without file names; empty if equal."""
    lines = unified_diff(before.split("\n"), after.split("\n"), lineterm="")
    return "\n".join(list(lines)[2:])


def diff_lines(diff: str) -> list[tuple[str, str]]:
    """Return the diff's lines, each with its class: added, removed, place or context."""
    kinds = {"+": "added", "-": "removed", "@": "place"}
    return [(kinds.get(line[:1], "context"), line) for line in diff.split("\n")]
