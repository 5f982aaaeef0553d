import pytest

from skillopt_airflow.core.judged_task import RIGHT, JudgedTask, choices_of, right_letters
from skillopt_airflow.core.protocols import AsksJudge
from skillopt_airflow.core.scoring.text_match import Exact
from skillopt_airflow.core.task_group import TaskGroup
from skillopt_airflow.core.types import Item, JsonObject, Status, Trajectory

SECTION = TaskGroup(prompt="{{ image }}\n{{ question }}", reference="gold", score=Exact(), id="id", pictures=("image",))
RECORD: JsonObject = {"id": "a", "image": "pictures/one.png", "question": "How many?", "gold": "B"}


class KnowsTwoAnswers(JudgedTask):
    """Is certain of 4 and of 5."""

    def decision(self, answer: str, reference: JsonObject) -> bool | None:
        return {"4": True, "5": False}.get(answer)


TASK = KnowsTwoAnswers(SECTION, "Numbers count.")
ITEM = TASK.asked(RECORD, "How many?", {"A": "3", "B": "4"}, frozenset("B"))


def tried(answer: str) -> Trajectory:
    return Trajectory(item_id="a", status=Status.OK, answer=answer)


@pytest.mark.parametrize(
    ("answer", "hard", "certain"), [("4", 1, True), ("5", 0, True), (" ", 0, True), ("6", 0, False)]
)
def test_rules_score_what_they_are_certain_of(answer: str, hard: float, certain: bool) -> None:
    score = TASK.score(ITEM, tried(answer))
    assert (score.hard, score.soft, TASK.decides(ITEM, tried(answer))) == (hard, hard, certain)
    assert score.feedback.startswith(f'expected "B: 4"; answered "{answer}"')
    assert ("cannot tell" in score.feedback) != certain


def test_the_judge_gets_question_choices_and_the_right_one() -> None:
    assert isinstance(TASK, AsksJudge)
    stored = Item.model_validate_json(ITEM.model_dump_json())
    assert (stored, stored.reference[RIGHT]) == (ITEM, ["B"])
    asked = TASK.grading(stored, tried("four"))
    assert asked.question == "How many?\nA. 3\nB. 4"
    assert (asked.references, asked.answer, asked.instructions) == (("B: 4",), "four", "Numbers count.")
    # Without choices the reference is a text.
    item = TASK.asked(RECORD | {"gold": "4"}, "How many?", {}, frozenset())
    assert TASK.grading(item, tried("four")).references == ("4",)
    assert TASK.grading(item, tried("four")).question == "How many?"
    assert TASK.score(item, tried("five")).feedback.startswith('expected "4"; answered "five"')


def test_the_target_sees_the_picture_and_nothing_of_the_reference() -> None:
    assert ITEM.public == {"prompt": "[picture: picture-1.png]\nHow many?"}
    assert [(file.path, file.picture) for file in ITEM.files] == [("pictures/one.png", True)]
    assert (choices_of(ITEM.reference), right_letters(ITEM.reference)) == ({"A": "3", "B": "4"}, frozenset("B"))
