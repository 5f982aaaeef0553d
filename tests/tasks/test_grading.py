from typing import Any

import pytest
from pydantic import ValidationError

from skillopt_airflow.core.values.types import Grade, Score
from skillopt_airflow.tasks.grading import GradingRequest, process_score, rests_on_answer, score_by


def test_nothing_can_be_graded_without_a_reference() -> None:
    with pytest.raises(ValidationError, match="references"):
        GradingRequest(question="?", references=(), answer="42")


@pytest.mark.parametrize(("grade", "score"), [("correct", 1.0), ("incorrect", 0.0), ("not_attempted", 0.0)])
def test_only_what_is_correct_scores(grade: Any, score: float) -> None:
    given = Grade(grade=grade, quote="q", reason="It says so.")
    found = score_by(given, Score(hard=0, soft=0.5, feedback='expected "a"'))
    assert (found.hard, found.soft, found.grade) == (score, score, given)
    assert found.feedback.startswith('expected "a"; ')
    assert grade.replace("_", " ") in found.feedback


@pytest.mark.parametrize(
    ("grade", "quote", "rests"),
    [
        ("correct", "is in New York", True),
        ("correct", " is in new\u00a0York", False),
        ("correct", "in New\n York.", True),
        ("correct", "New York.", False),
        ("correct", "", False),
        ("incorrect", "", False),
        ("incorrect", "in New York.", True),
        ("not_attempted", "", True),
        ("not_attempted", "in Boston", False),
    ],
)
def test_a_grade_rests_on_words_of_the_answer(grade: Any, quote: str, rests: bool) -> None:
    assert rests_on_answer(Grade(grade=grade, quote=quote, reason=""), "It is in New York.") is rests


def test_a_short_answer_is_quoted_as_a_whole() -> None:
    for quote, rests in (("4 2", True), ("42", True), ("4", False), ("", False)):
        assert rests_on_answer(Grade(grade="correct", quote=quote, reason=""), "42\n") is rests


@pytest.mark.parametrize(
    ("lengths", "taken", "share"),
    [
        # True, true, false, true over a path of six steps, and one of three over a path of five (MMRB's paper).
        ((6, 5), {(0, 1), (0, 2), (0, 4), (1, 2)}, 0.75),
        ((5, 6), {(0, 1), (0, 2), (0, 3)}, 1.0),
        ((3,), {(0, 0), (0, 2), (0, 7), (4, 1)}, 0.0),
        ((2, 3), {(0, 0), (0, 1), (1, 1)}, 1.0),
    ],
)
def test_the_best_path_counts_without_its_ends(lengths: tuple[int, ...], taken: set[Any], share: float) -> None:
    assert process_score([["step"] * length for length in lengths], taken) == share


def test_steps_are_the_soft_score_and_the_rules_decide_the_hard_one() -> None:
    given = Grade(grade="incorrect", quote="q", reason="it takes half", process=0.5)
    found = score_by(given, Score(hard=1, soft=1, feedback='expected "a"'))
    assert (found.hard, found.soft, found.grade) == (1, 0.5, given)
    assert "it takes half" in found.feedback
