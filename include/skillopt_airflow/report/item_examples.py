"""Trajectories that a report shows: what the target was told, what it said, and how that was scored."""

from collections.abc import Callable, Mapping, Sequence

from skillopt_airflow.core.grading import GradingRequest, JudgeUse
from skillopt_airflow.core.item_scores import ItemScore
from skillopt_airflow.core.pictures import Picture, Pictures, shown
from skillopt_airflow.core.shortening import shortened
from skillopt_airflow.core.types import Grade, Rollout, Status, Trajectory, Value

MOST_OF_A_KIND = 2
"""Failures and successes that are shown, and of the answers that a judge scored."""
MOST_OF_QUESTION = 500
"""Characters of a question that a judge was asked about."""
MOST_CHARS = 3000
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
    return [*failures[:MOST_OF_A_KIND], *successes[:MOST_OF_A_KIND]]


def example_of(rollout: Rollout, thumbnails: Pictures) -> Example | None:
    """Return the rollout with small pictures in place of its own; None if it has no score, or no texts any more."""
    one, score = rollout.trajectory, rollout.score
    if score is None or not one.messages:
        return None
    turns = tuple(
        Turn(role=message.role, parts=tuple(map(_part, pieces)))
        for message, pieces in shown(one.messages, thumbnails)
        if message.role != "system"
    )
    return Example(
        item_id=one.item_id,
        hard=score.hard,
        soft=score.soft,
        feedback=score.feedback,
        answer=shortened(one.answer, MOST_CHARS),
        turns=turns,
    )


def judging_of(
    rollouts: Sequence[Rollout], split: str, use: JudgeUse, judge: str, request: Callable[[Trajectory], GradingRequest]
) -> Judging:
    """Count by whom the rollouts were scored, and show a few that the judge scored, of each grade as many.

    Args:
        rollouts: of the split.
        split: its name.
        use: whose word counts.
        judge: name of the model.
        request: what the judge is asked about a rollout.
    """
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
            for one, grade in [*right[:MOST_OF_A_KIND], *others[:MOST_OF_A_KIND]]
        ),
    )


def _judged(item_id: str, asked: GradingRequest, grade: Grade) -> JudgedAnswer:
    return JudgedAnswer(
        item_id=item_id,
        question=shortened(asked.question, MOST_OF_QUESTION),
        references=asked.references,
        answer=shortened(asked.answer, MOST_CHARS),
        grade=grade,
    )


def _part(piece: str | Picture) -> Part:
    return Part(thumbnail=piece.content) if isinstance(piece, Picture) else Part(text=shortened(piece, MOST_CHARS))
