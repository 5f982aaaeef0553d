"""Grading by a model, the judge, where a benchmark's rules cannot decide whether an answer is right."""

from typing import Literal

from pydantic import Field

from skillopt_airflow.core.types import Value

JudgeUse = Literal["rules", "rules_first", "always"]
"""Whose word counts: the rules' alone, the judge's where they cannot decide, or the judge's for every answer."""


class GradingRequest(Value):
    """What the judge is asked: whether an answer agrees with a reference."""

    question: str
    references: tuple[str, ...] = Field(min_length=1)
    """Answers that are right, any of them."""
    answer: str
    instructions: str = ""
    """What agreement means in this benchmark, such as that the order of coordinates counts."""


class Grade(Value):
    """The judge's verdict on an answer."""

    grade: Literal["correct", "incorrect", "not_attempted"]
    quote: str
    """The part of the answer that the grade rests on, as it stands there."""
    reason: str
