"""Grading by a model, the judge, where a benchmark's rules cannot decide whether an answer is right."""

from collections.abc import Sequence, Set
from statistics import fmean

from pydantic import Field

from skillopt_airflow.core.values.types import Grade, Score, Value, Verdict

ENDS = ("first", "last")
"""The steps of a path that do not count."""
MIN_QUOTE = 10
"""Characters, blanks left out: what is shorter stands in almost any answer."""


class GradingRequest(Value):
    """A question to the judge: does an answer agree with a reference?"""

    question: str
    references: tuple[str, ...] = Field(min_length=1)
    """Answers that are right, any of them."""
    answer: str
    instructions: str = ""
    """What agreement means in this benchmark, such as that the order of coordinates counts."""
    paths: tuple[tuple[str, ...], ...] = ()
    """Known ways to the answer, each in steps; with them the judge is asked which steps the answer takes."""


def score_by(grade: Grade, by_rules: Score) -> Score:
    """Return the score that a grade gives; the rules' words stay, because they name what was expected.

    Where the judge was asked about steps, those are the soft score, and the rules decide the hard one.
    """
    if grade.process is not None:
        told = f"{by_rules.feedback}; the judge: {grade.reason}"
        return Score(hard=by_rules.hard, soft=grade.process, feedback=told, grade=grade)
    right = float(grade.grade == "correct")
    told = f"the judge says {grade.grade.replace('_', ' ')}: {grade.reason}"
    return Score(hard=right, soft=right, feedback=f"{by_rules.feedback}; {told}", grade=grade)


def rests_on_answer(verdict: Verdict, answer: str) -> bool:
    """Return whether a verdict quotes the answer; only what was not attempted needs no quote."""
    return is_quote(verdict.quote, answer) or (verdict.grade == "not_attempted" and not verdict.quote.strip())


def is_quote(quote: str, answer: str) -> bool:
    """Return whether a quote is of the answer, but for its blanks, and has MIN_QUOTE characters or all of them."""
    quoted, said = "".join(quote.split()), "".join(answer.split())
    return quoted in said and len(quoted) >= max(1, min(MIN_QUOTE, len(said)))


def process_score(paths: Sequence[Sequence[str]], taken: Set[tuple[int, int]]) -> float:
    """Return the largest share, of all paths, of the steps that are taken.

    The first step, which understands the task, and the last, which concludes, do not count, and so does no path
    without others (MMRB, score_step_correctness_category.py).

    Args:
        paths: steps of each path, one of them of three steps or more.
        taken: places of steps, path and step, from 0.
    """
    inner = {number: range(1, len(path) - 1) for number, path in enumerate(paths) if len(path) > len(ENDS)}
    return max(fmean((number, step) in taken for step in steps) for number, steps in inner.items())
