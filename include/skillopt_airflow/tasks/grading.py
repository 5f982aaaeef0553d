"""Grading by a judge model, for answers on which a benchmark's rules can't decide."""

from collections.abc import Sequence, Set
from statistics import fmean

from pydantic import Field

from skillopt_airflow.core.values.types import Grade, Score, Value, Verdict

ENDS = ("first", "last")
"""Steps of a path that don't count."""
MIN_QUOTE = 10
"""Characters, whitespace excluded. Almost any answer contains shorter strings."""


class GradingRequest(Value):
    """A request to decide whether an answer agrees with a reference."""

    question: str
    references: tuple[str, ...] = Field(min_length=1)
    """Right answers; agreement with any of them suffices."""
    answer: str
    instructions: str = ""
    """The meaning of agreement in this benchmark, such as whether the order of coordinates counts."""
    paths: tuple[tuple[str, ...], ...] = ()
    """Known solutions, each a list of steps. If given, the judge reports which steps the answer takes."""


def score_by(grade: Grade, by_rules: Score) -> Score:
    """Return the score of a grade, with the rules' feedback, which names the expected answer.

    If the judge graded steps, they make the soft score, and the rules decide the hard one.
    """
    if grade.process is not None:
        feedback = f"{by_rules.feedback}; the judge: {grade.reason}"
        return Score(hard=by_rules.hard, soft=grade.process, feedback=feedback, grade=grade)
    right = float(grade.grade == "correct")
    verdict = f"the judge says {grade.grade.replace('_', ' ')}: {grade.reason}"
    return Score(hard=right, soft=right, feedback=f"{by_rules.feedback}; {verdict}", grade=grade)


def rests_on_answer(verdict: Verdict, answer: str) -> bool:
    """Return whether a verdict quotes the answer; `not_attempted` needs no quote."""
    return is_quote(verdict.quote, answer) or (verdict.grade == "not_attempted" and not verdict.quote.strip())


def is_quote(quote: str, answer: str) -> bool:
    """Return whether the answer contains the quote, whitespace ignored, and it is long enough (MIN_QUOTE)."""
    quoted, answered = "".join(quote.split()), "".join(answer.split())
    return quoted in answered and len(quoted) >= max(1, min(MIN_QUOTE, len(answered)))


def process_score(paths: Sequence[Sequence[str]], taken: Set[tuple[int, int]]) -> float:
    """Return the share of steps taken on the path with the largest share; `taken` has pairs of path and step, from 0.

    The first step (understanding the task) and the last (concluding) don't count, nor do paths without other steps
    (MMRB, score_step_correctness_category.py). At least one path has three steps.
    """
    inner = {number: range(1, len(path) - 1) for number, path in enumerate(paths) if len(path) > len(ENDS)}
    return max(fmean((number, step) in taken for step in steps) for number, steps in inner.items())
