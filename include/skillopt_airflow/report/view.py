"""The report's data: the run's history, and the documents, rollouts and trajectories that the page also shows."""

from collections.abc import Callable, Mapping, Sequence
from typing import Self

from pydantic import model_validator

from skillopt_airflow.core.config.training_groups import JudgeUse
from skillopt_airflow.core.gate.item_scores import ItemScore
from skillopt_airflow.core.gate.measured_score import SplitScore
from skillopt_airflow.core.run.history import History, StageRollouts
from skillopt_airflow.core.values.pictures import Picture, Pictures, message_parts
from skillopt_airflow.core.values.provenance import LineOrigin
from skillopt_airflow.core.values.text import shortened
from skillopt_airflow.core.values.types import Grade, Rollout, Status, Trajectory, Value
from skillopt_airflow.tasks.grading import GradingRequest

MAX_PER_KIND = 2
"""Failures and successes that are shown, and of the answers that a judge scored."""
MAX_QUESTION_CHARS = 500
"""Characters of a question that a judge was asked about."""
MAX_CHARS = 3000
"""Characters of a message; of a longer one its beginning and its end."""


class Part(Value):
    """A piece of a message: a text or a picture."""

    text: str = ""
    thumbnail: bytes = b""

    @property
    def data_url(self) -> str:
        """Return the picture as an address that holds it; empty for a text."""
        return Picture(self.thumbnail).data_url if self.thumbnail else ""


class Turn(Value):
    """A message."""

    role: str
    parts: tuple[Part, ...]


class JudgedAnswer(Value):
    """An answer that a model judged."""

    item_id: str
    question: str
    references: tuple[str, ...]
    answer: str
    grade: Grade


class Judging(Value):
    """The judging of a split's answers under the best skill: who scored how many of them."""

    split: str
    use: JudgeUse
    judge: str
    by_rules: int
    by_judge: int
    errors: int
    """Answers that the judge was asked about in vain; they have no score."""
    sample: tuple[JudgedAnswer, ...]


class Example(Value):
    """A rollout that has a score."""

    item_id: str
    hard: float
    soft: float
    feedback: str
    answer: str
    turns: tuple[Turn, ...]
    """All but the system's message, which holds the skill."""


def chosen(scores: Mapping[str, ItemScore]) -> list[str]:
    """Return the ids of the items that are shown: the first ones that failed, and the first that did not."""
    failures = [item for item, score in scores.items() if score.hard < 1]
    successes = [item for item, score in scores.items() if score.hard == 1]
    return [*failures[:MAX_PER_KIND], *successes[:MAX_PER_KIND]]


def example_of(rollout: Rollout, thumbnails: Pictures) -> Example | None:
    """Return the rollout with small pictures in place of its own; None if it has no score, or no texts any more."""
    one, score = rollout.trajectory, rollout.score
    if score is None or not one.messages:
        return None
    turns = tuple(
        Turn(role=message.role, parts=tuple(map(_part, pieces)))
        for message, pieces in message_parts(one.messages, thumbnails)
        if message.role != "system"
    )
    return Example(
        item_id=one.item_id,
        hard=score.hard,
        soft=score.soft,
        feedback=score.feedback,
        answer=shortened(one.answer, MAX_CHARS),
        turns=turns,
    )


def judging_of(
    rollouts: Sequence[Rollout], split: str, use: JudgeUse, judge: str, request: Callable[[Trajectory], GradingRequest]
) -> Judging:
    """Count by whom the rollouts were scored, and show a few that the judge scored, of each grade as many."""
    graded = [(one, one.score.grade) for one in rollouts if one.score is not None and one.score.grade is not None]
    right = [pair for pair in graded if pair[1].grade == "correct"]
    others = [pair for pair in graded if pair[1].grade != "correct"]
    return Judging(
        split=split,
        use=use,
        judge=judge,
        by_rules=sum(one.score is not None for one in rollouts) - len(graded),
        by_judge=len(graded),
        errors=sum(one.trajectory.status is Status.JUDGE_ERROR for one in rollouts),
        sample=tuple(
            _judged(one.trajectory.item_id, request(one.trajectory), grade)
            for one, grade in [*right[:MAX_PER_KIND], *others[:MAX_PER_KIND]]
        ),
    )


def _judged(item_id: str, asked: GradingRequest, grade: Grade) -> JudgedAnswer:
    return JudgedAnswer(
        item_id=item_id,
        question=shortened(asked.question, MAX_QUESTION_CHARS),
        references=asked.references,
        answer=shortened(asked.answer, MAX_CHARS),
        grade=grade,
    )


def _part(piece: str | Picture) -> Part:
    return Part(thumbnail=piece.content) if isinstance(piece, Picture) else Part(text=shortened(piece, MAX_CHARS))


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
        selection = (("seed", "selection", self.seed), ("best", "selection", self.best))
        return (*selection, *((name, "test", score) for name, score in self.test.items()))

    @property
    def task_types(self) -> tuple[str, ...]:
        """The types of task that any of these has a score for, in alphabetical order."""
        return tuple(sorted({one.task_type for _, _, score in self.measured for one in score.by_type}))

    @property
    def troubled(self) -> tuple[StageRollouts, ...]:
        return tuple(stage for stage in self.outcomes if stage.failures or stage.truncated or stage.empty)

    @property
    def fallbacks(self) -> int:
        return sum(len(moment.fallbacks) for moment in self.moments)


def slug_of(moment: str) -> str:
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


def diff_lines(diff: str) -> list[tuple[str, str]]:
    kinds = {"+": "added", "-": "removed", "@": "place"}
    return [(kinds.get(line[:1], "context"), line) for line in diff.split("\n")]
