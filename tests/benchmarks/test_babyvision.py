from typing import Any

import pytest

from benchmarks.babyvision.adapter import BENCHMARK
from skillopt_airflow.core.values.types import Item
from tests.benchmarks.judged_by_rules import assert_judged, judged

RECORD: dict[str, Any] = {
    "taskId": 7,
    "type": "Visual Tracking",
    "subtype": "Lines Observation",
    "question": "Which line leads to the house?",
    "ansType": "choice",
    "options": ["the red one", "the blue one", "the green one"],
    "choiceAns": 0,
    "blankAns": "null",
    "image": "images/7.png",
    "coT": "SECRET",
    "status": "null",
}


def choice(letter: str) -> Item:
    return BENCHMARK.item(RECORD | {"choiceAns": "ABC".index(letter)})


def blank(gold: str) -> Item:
    return BENCHMARK.item(RECORD | {"ansType": "blank", "blankAns": gold, "choiceAns": None, "options": []})


@pytest.mark.parametrize(
    ("item", "right", "wrong", "uncertain"),
    [
        (choice("A"), ["A"], ["B", "D", ""], []),
        (choice("B"), ["\\text{(B)}", "the blue one", "B: the blue one", "B rather than A"], ["A and B"], ["blue"]),
        (choice("B"), [], [], ["option B is wrong"]),
        (blank("10,5"), ["(10,5)"], ["(5,10)"], []),
        (blank("5"), ["5.0"], ["6"], ["five"]),
        (blank("(3, 7)"), ["3,7", "(03, 7.0)"], ["3", "3,7.1"], ["Row 3 Column 7"]),
        (blank("Row 4 Column 17"), [], [], ["(4,17)"]),
        (blank("0.5"), ["\\frac{1}{2}"], [], []),
    ],
)
def test_what_rules_are_certain_of(item: Item, right: list[str], wrong: list[str], uncertain: list[str]) -> None:
    assert_judged(BENCHMARK, item, "so \\boxed{{A and B}}, rather \\boxed{{ {} }}", right, wrong, uncertain)


def test_a_box_may_be_made_of_tokens_and_there_is_no_answer_without_one() -> None:
    assert (
        judged(BENCHMARK, blank("5"), "<|begin_of_box|>4<|end_of_box|> no, <|begin_of_box|> 5 <|end_of_box|>") is True
    )
    assert judged(BENCHMARK, choice("A"), "A") is False
    assert judged(BENCHMARK, choice("A"), "\\boxed{A") is False


def test_the_target_sees_picture_question_and_choices() -> None:
    item = choice("B")
    prompt = str(item.public["prompt"])
    assert prompt.startswith("[picture: picture-1.png]\nWhich line leads to the house?\n")
    assert "Choices:\n(A) the red one\n(B) the blue one\n(C) the green one" in prompt
    assert "SECRET" not in item.model_dump_json()
    assert item.id == "7"
    assert [file.path for file in item.files] == ["images/7.png"]
    assert "Choices" not in str(blank("5").public["prompt"])
