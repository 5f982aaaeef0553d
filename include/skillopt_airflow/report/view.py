"""The data of a report: the run's history, its best skill, graded answers, and example rollouts."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, repeat
from typing import NamedTuple

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
"""Failures, and successes, shown as examples; the same for graded answers."""
MAX_QUESTION_CHARS = 500
MAX_CHARS = 3000
"""Longest message shown in full; a longer one is cut in the middle."""


class Part(Value):
    """A text or a picture."""

    text: str = ""
    thumbnail: bytes = b""

    @property
    def data_url(self) -> str:
        """Empty for a text."""
        return Picture(self.thumbnail).data_url if self.thumbnail else ""


class Turn(Value):
    role: str
    parts: tuple[Part, ...]


class JudgedAnswer(Value):
    """An answer that the judge model graded."""

    item_id: str
    question: str
    references: tuple[str, ...]
    answer: str
    grade: Grade


class Judging(Value):
    """Number of answers scored by rules and by the judge model, on one split with the best skill."""

    split: str
    use: JudgeUse
    judge: str
    by_rules: int
    by_judge: int
    errors: int
    """Answers without a score because the judge failed."""
    sample: tuple[JudgedAnswer, ...]


class Example(Value):
    item_id: str
    hard: float
    soft: float
    feedback: str
    answer: str
    turns: tuple[Turn, ...]
    """All messages except the system message, which holds the skill."""


def example_ids(scores: Mapping[str, ItemScore]) -> list[str]:
    """Return the ids of the first failures and the first successes."""
    failures = [item for item, score in scores.items() if score.hard < 1]
    successes = [item for item, score in scores.items() if score.hard == 1]
    return [*failures[:MAX_PER_KIND], *successes[:MAX_PER_KIND]]


def example_of(rollout: Rollout, thumbnails: Pictures) -> Example | None:
    """Return the rollout with thumbnails; None if it has no score, or if its messages were removed."""
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
    """Count the rollouts scored by rules and by the judge, with examples of correct and other grades."""
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


def _judged(item_id: str, request: GradingRequest, grade: Grade) -> JudgedAnswer:
    return JudgedAnswer(
        item_id=item_id,
        question=shortened(request.question, MAX_QUESTION_CHARS),
        references=request.references,
        answer=shortened(request.answer, MAX_CHARS),
        grade=grade,
    )


def _part(piece: str | Picture) -> Part:
    return Part(thumbnail=piece.content) if isinstance(piece, Picture) else Part(text=shortened(piece, MAX_CHARS))


MAX_NAMED_MINIBATCHES = 4


class ReportView(History):
    """A run so far, with its best skill and example rollouts."""

    skill: str
    """Text of the best skill."""
    lines: tuple[LineOrigin, ...]
    """One per line of `skill.split("\\n")`."""
    task: str = ""
    """The running task; empty when the run has ended."""
    judging: Judging | None = None
    """None if only rules score answers, or while the run goes on."""
    examples: tuple[Example, ...] = ()
    """Items of the selection split with the best skill; empty while the run goes on."""

    @property
    def standin(self) -> bool:
        """True if the target or the optimizer is the offline stand-in."""
        return any("stand-in" in name for name in (self.target, self.optimizer))

    @property
    def measured(self) -> tuple[tuple[str, str, SplitScore], ...]:
        selection = (("seed", "selection", self.seed), ("best", "selection", self.best))
        return (*selection, *((name, "test", score) for name, score in self.test.items()))

    @property
    def task_types(self) -> tuple[str, ...]:
        """Sorted types of task that have a score."""
        return tuple(sorted({one.task_type for _, _, score in self.measured for one in score.by_type}))

    @property
    def troubled(self) -> tuple[StageRollouts, ...]:
        return tuple(stage for stage in self.outcomes if stage.failures or stage.truncated or stage.empty)

    @property
    def fallbacks(self) -> int:
        return sum(len(moment.fallbacks) for moment in self.moments)


def slug_of(moment: str) -> str:
    return moment.replace("/", "-")


def readable_moment(moment: str) -> str:
    """Return a readable name: `steps/step_0007` becomes "step 7"."""
    kind, _, name = moment.partition("/")
    number = name.rpartition("_")[2].lstrip("0")
    if kind == "steps":
        return f"step {number}"
    return f"{kind.replace('_', ' ')}, epoch {number}" if number.isdigit() else moment


def origin_detail(op: str, minibatches: Sequence[str]) -> str:
    """Return the operation of a line's edit and the names, or the number, of its minibatches."""
    named = len(minibatches) <= MAX_NAMED_MINIBATCHES
    sources = minibatches if named else (f"{len(minibatches)} minibatches",)
    return ", ".join(part for part in (op.replace("_", " "), *sources) if part)


class SkillLine(NamedTuple):
    number: int
    text: str
    origin: str
    href: str
    """Link to the edit; empty without an edit or a page of it."""
    detail: str
    opens: bool
    """True if the previous line has another origin."""


def skill_lines(
    skill: str, origins: Sequence[LineOrigin], place: Callable[[LineOrigin], tuple[str, str]]
) -> Iterator[SkillLine]:
    """Yield the lines of a skill, unknown ones after the last origin; `place` returns name and link of an edit."""
    origin: tuple[str, str, str, int | None]
    before, texts = None, skill.removesuffix("\n").split("\n")
    for number, (text, line) in enumerate(zip(texts, chain(origins, repeat(None)), strict=False), start=1):
        if line is None or line.edit is None:
            origin = ("unknown" if line is None else "seed", "", "", None)
        else:
            origin = (*place(line), origin_detail(line.op, line.minibatches), line.edit)
        yield SkillLine(number, text, *origin[:3], opens=origin != before)
        before = origin


def diff_lines(diff: str) -> list[tuple[str, str]]:
    kinds = {"+": "added", "-": "removed", "@": "place"}
    return [(kinds.get(line[:1], "context"), line) for line in diff.split("\n")]
