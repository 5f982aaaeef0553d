"""Grading by a model, the judge, where a benchmark's rules cannot decide whether an answer is right."""

from typing import Literal

from pydantic import Field

from skillopt_airflow.core.types import Grade, Score, Value

LEAST_QUOTE = 10
"""Characters, blanks left out: what is shorter stands in almost any answer."""

JudgeUse = Literal["rules", "rules_first", "always"]
"""Whose word counts: the rules' alone, the judge's where they cannot decide, or the judge's for every answer."""


class GradingRequest(Value):
    """A question to the judge: does an answer agree with a reference?"""

    question: str
    references: tuple[str, ...] = Field(min_length=1)
    """Answers that are right, any of them."""
    answer: str
    instructions: str = ""
    """What agreement means in this benchmark, such as that the order of coordinates counts."""


def score_by(grade: Grade, by_rules: Score) -> Score:
    """Return the score that a grade gives; the rules' words stay, because they name what was expected."""
    right = float(grade.grade == "correct")
    told = f"the judge says {grade.grade.replace('_', ' ')}: {grade.reason}"
    return Score(hard=right, soft=right, feedback=f"{by_rules.feedback}; {told}", grade=grade)


def rests_on_answer(grade: Grade, answer: str) -> bool:
    """Return whether the quote is of the answer, but for its blanks, and long enough to rest on.

    It has LEAST_QUOTE characters, or all of a shorter answer; what was not attempted needs none.
    """
    quote, said = "".join(grade.quote.split()), "".join(answer.split())
    least = 0 if grade.grade == "not_attempted" else max(1, min(LEAST_QUOTE, len(said)))
    return quote in said and len(quote) >= least
