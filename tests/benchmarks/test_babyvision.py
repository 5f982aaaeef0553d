from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.babyvision.adapter import BENCHMARK
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.types import Item, Status, Trajectory

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


def judged(item: Item, reply: str) -> bool | None:
    """Whether the rules take the reply for right; None if they leave it to the judge, and then it scores 0."""
    trajectory = Trajectory(item_id=item.id, status=Status.OK, answer=BENCHMARK.answer(reply))
    score = BENCHMARK.score(item, trajectory)
    if BENCHMARK.decides(item, trajectory):
        return score.hard == 1
    assert score.hard == 0
    return None


@pytest.mark.parametrize(
    ("reply", "item", "right"),
    [
        # As officially.
        ("\\boxed{A} or rather \\boxed{ C }", choice("C"), True),
        ("\\boxed{B}", choice("A"), False),
        ("\\boxed{D}", choice("C"), False),
        ("\\boxed{\\text{(B)}}", choice("B"), True),
        ("\\boxed{(10,5)}", blank("10,5"), True),
        ("\\boxed{(5,10)}", blank("(10,5)"), False),
        ("<|begin_of_box|>4<|end_of_box|> no, <|begin_of_box|> 5 <|end_of_box|>", blank("5"), True),
        ("A", choice("A"), False),
        ("\\boxed{}", choice("A"), False),
        ("\\boxed{A", choice("A"), False),
        ("\\boxed{Row 4 Column 17}", blank("(4,17)"), None),
        # What else rules are certain of.
        ("\\boxed{the blue one}", choice("B"), True),
        ("\\boxed{B: the blue one}", choice("B"), True),
        ("\\boxed{blue}", choice("B"), None),
        ("\\boxed{option B is wrong}", choice("B"), None),
        ("\\boxed{B rather than A}", choice("B"), True),
        ("\\boxed{A and B}", choice("B"), False),
        ("\\boxed{6}", blank("5"), False),
        ("\\boxed{5.0}", blank("5"), True),
        ("\\boxed{(03, 7.0)}", blank("(3, 7)"), True),
        ("\\boxed{3,7.1}", blank("(3, 7)"), False),
        ("\\boxed{3}", blank("(3, 7)"), False),
        ("\\boxed{five}", blank("5"), None),
        ("\\boxed{(4,17)}", blank("Row 4 Column 17"), None),
        ("\\boxed{\\frac{1}{2}}", blank("0.5"), True),
    ],
)
def test_rules_judge_a_reply_or_leave_it_to_the_judge(reply: str, item: Item, right: bool | None) -> None:
    assert judged(item, reply) is right


@given(st.text(max_size=60))
def test_any_reply_is_judged_and_none_without_a_box_is_right(text: str) -> None:
    assert judged(choice("A"), text.replace("boxed", "")) in (False, None)
    assert judged(blank("5"), f"{text}\n\\boxed{{5}}") is True


def test_the_target_sees_picture_question_and_choices() -> None:
    item = choice("B")
    prompt = str(item.public["prompt"])
    assert prompt.startswith("[picture: picture-1.png]\nWhich line leads to the house?\n")
    assert "Choices:\n(A) the red one\n(B) the blue one\n(C) the green one" in prompt
    assert "SECRET" not in item.model_dump_json()
    assert item.id == "7"
    assert [file.path for file in item.files] == ["images/7.png"]
    assert "Choices" not in str(blank("5").public["prompt"])


@pytest.mark.parametrize(
    "change",
    [
        {"taskId": None},
        {"question": ""},
        {"image": ""},
        {"ansType": "essay"},
        {"choiceAns": 3},
        {"choiceAns": -1},
        {"choiceAns": "A"},
        {"options": []},
        {"options": ["x"] * 27},
        {"ansType": "blank", "blankAns": ""},
    ],
)
def test_a_broken_record_is_named(change: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=f"^{[*change][-1]}: expected"):
        BENCHMARK.item(RECORD | change)
