import json
from typing import Any

import pytest

from bench.real_data import ABSENT, REAL_DATA
from benchmarks.mathverse.adapter import BENCHMARK, split_choices
from skillopt_airflow.core.values.types import Item, Status, Trajectory
from tests.benchmarks.judged_by_rules import assert_judged, judged

REAL = REAL_DATA / "mathverse" / "text_only.json"
ANGLES = "Find the angle.\nChoices:\nA:110°\nB:125°\nC:135°\nD:140°"
RECORD: dict[str, Any] = {
    "sample_index": "42",
    "problem_index": "9",
    "problem_version": "Text Lite",
    "question": ANGLES,
    "image": "images_version_1-4/image_9.png",
    "answer": "D",
    "question_type": "multi-choice",
    "metadata": {"split": "testmini", "source": "GeoQA", "subject": "Plane Geometry", "subfield": "Angle"},
    "question_for_eval": ANGLES,
}


def made(answer: str, kind: str = "multi-choice", question: str = ANGLES, **changes: Any) -> Item:
    changes = {"question_for_eval": question} | changes
    return BENCHMARK.item(RECORD | {"answer": answer, "question_type": kind, "question": question} | changes)


CHOICE, FREE = "multi-choice", "free-form"
TRUTH = "True or false?\nChoice:\nA. True\nB. False"


@pytest.mark.parametrize(
    ("item", "right", "wrong", "uncertain"),
    [
        (made("D"), ["d.", "140°", "\\boxed{D}"], ["E", "A, not option D", ""], ["the largest one", "Not option D"]),
        (made("(C)"), ["C"], [], []),
        (made("False", CHOICE, TRUTH), ["B"], [], []),
        (made("C\nD"), ["C, D"], ["C"], []),
        (made("$\\frac{4}{5}$", FREE, "Find x."), ["\\boxed{\\frac{4}{5}}", "0.8"], [""], ["15"]),
        (made("(-2,1]", FREE, "Give the domain."), [], [], ["(-2,1)"]),
        (made("domain: [-4, 0) and range: (-3, 1]", FREE, "Give both."), [], [], ["[-4,0)"]),
        (made("0.5 m", FREE, "Find x."), [], [], ["50 cm"]),
    ],
)
def test_what_rules_are_certain_of(item: Item, right: list[str], wrong: list[str], uncertain: list[str]) -> None:
    assert_judged(BENCHMARK, item, "<answer>{}</answer>", right, wrong, uncertain)


def test_without_tags_the_last_line_or_a_box_is_the_answer() -> None:
    item = made("14", FREE, "Find x.")
    assert judged(BENCHMARK, item, "The sides add up\nto this:\n14") is True
    assert judged(BENCHMARK, item, "So \\boxed{14} it is.") is True
    assert judged(BENCHMARK, item, "") is False


def test_the_versions_of_a_problem_are_items_of_one_group_and_one_of_text_has_no_picture() -> None:
    versions = ["Text Dominant", "Text Lite", "Vision Intensive", "Vision Dominant", "Vision Only", "Text Only"]
    items = [BENCHMARK.item(RECORD | {"problem_version": version}) for version in versions]
    assert items[0].id == "9-text-dominant"
    assert len({item.id for item in items}) == len(versions)
    assert {item.group for item in items} == {"9"}
    item = BENCHMARK.item(RECORD | {"problem_version": "Text Only", "image": ""})
    assert item.files == ()
    assert str(item.public["prompt"]).startswith("Find the angle.\nChoices:\nA:110°")


def test_a_problem_by_its_picture_alone_is_judged_by_the_whole_question() -> None:
    item = BENCHMARK.item(RECORD | {"problem_version": "Vision Only", "question": ""})
    assert str(item.public["prompt"]).startswith("[picture: picture-1.png]\nThe question is in the picture.\n")
    assert "140°" not in str(item.public)
    asked = BENCHMARK.grading(item, Trajectory(item_id=item.id, status=Status.OK, answer="obtuse"))
    assert asked.question == "Find the angle.\nA. 110°\nB. 125°\nC. 135°\nD. 140°"
    assert asked.references == ("D: 140°",)
    # It may come without the question as text.
    record = {key: value for key, value in RECORD.items() if key != "question_for_eval"}
    item = BENCHMARK.item(record | {"problem_version": "Vision Only", "question": ""})
    assert judged(BENCHMARK, item, "<answer>D</answer>") is True
    assert judged(BENCHMARK, item, "<answer>140°</answer>") is None


def test_choices_are_read_by_line() -> None:
    for listed, choices in (
        ("Choices:\nA:see A. and B)\nB:5", {"A": "see A. and B)", "B": "5"}),
        ("Choices:\n(A) 4\n(B) 5\n(C) 6", {"A": "4", "B": "5", "C": "6"}),
        ("Choice:\nA. two\nlines\nB. one", {"A": "two\nlines", "B": "one"}),
    ):
        assert split_choices(f"Find x.\n{listed}") == ("Find x.", choices)


def test_choices_that_cannot_be_read_leave_their_letters() -> None:
    for question in ("Find x.", "Find x.\nChoices:\n", "Find x.\nChoices:\nB:5\nA:4"):
        stem, choices = split_choices(question)
        assert stem == question
        assert (len(choices), set(choices.values())) == (26, {""})


@pytest.mark.skipif(not REAL.is_file(), reason=ABSENT)
def test_the_right_answers_of_all_real_problems_score_one_by_rules_alone() -> None:
    records = json.loads(REAL.read_text(encoding="utf-8"))
    items = [BENCHMARK.item(record) for record in records]
    assert len({item.id for item in items}) == len(items) == 400
    assert all(not item.files for item in items)
    for item, record in zip(items, records, strict=True):
        for form in ("<answer>{}</answer>", "Therefore:\n{}", "\\boxed{{{}}}"):
            assert judged(BENCHMARK, item, form.format(record["answer"])) is True, (item.id, form)
    lettered = [item for item in items if item.reference["right"]]
    assert len(lettered) == 218
    assert all(len(item.reference["choices"]) in range(2, 7) for item in lettered)  # type: ignore[arg-type]
