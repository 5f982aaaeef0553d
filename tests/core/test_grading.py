import pytest
from pydantic import ValidationError

from skillopt_airflow.core.grading import Grade, GradingRequest


def test_nothing_can_be_graded_without_a_reference() -> None:
    with pytest.raises(ValidationError, match="references"):
        GradingRequest(question="?", references=(), answer="42")


def test_a_grade_is_one_of_three() -> None:
    assert Grade(grade="not_attempted", quote="", reason="It names nothing.").grade == "not_attempted"
    with pytest.raises(ValidationError, match="grade"):
        Grade.model_validate({"grade": "true", "quote": "", "reason": ""})
