"""The report's data: the run's history, and the documents and rollouts that the page also shows."""

from collections.abc import Sequence
from difflib import unified_diff
from typing import Self

from pydantic import model_validator

from skillopt_airflow.core.measured_score import SplitScore
from skillopt_airflow.core.provenance import LineOrigin
from skillopt_airflow.core.run_history import History, StageRollouts
from skillopt_airflow.report.item_examples import Example, Judging

MINIBATCHES_WITH_NAME = 4


class ReportView(History):
    """A run as far as it has come, with its best skill and examples of its rollouts."""

    skill: str
    """Text of the best skill."""
    lines: tuple[LineOrigin, ...]
    """The origin of each of `skill.split("\\n")`."""
    task: str = ""
    """The task that runs now; empty when the run has ended."""
    judging: Judging | None = None
    """Who scored the answers; None where only the rules did, or the run goes on."""
    examples: tuple[Example, ...] = ()
    """Items of the selection split under the best skill, of a run that has ended."""

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
