"""MMRB's outcome scores, its pictures in their places, and its files as they were published."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from benchmarks.mmrb.adapter import BENCHMARK
from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.values.types import JsonObject, Message, Rollout, Status, Trajectory
from skillopt_airflow.optimizer.judge import grade
from skillopt_airflow.training.run.answer_cache import grading_request, with_grade
from tests.benchmarks.published_pictures import loaded, picture
from tests.optimizer.scripted_optimizer import ScriptedOptimizer

CHOICE: JsonObject = {
    "source": "s",
    "subtask": "t",
    "index": 3,
    "question": "Which bus of {image#2} is in {image#1}?",
    "options": ["(A) red bus", "(B) blue bus", "(C) no bus"],
    "answer": "B",
    "question_type": "multi-choice",
    "image_paths": ["a/1.jpg", "a/2.png", "a/3.png"],
}
OPEN = CHOICE | {"options": [], "question_type": "open", "question": "How many?"}


@pytest.mark.parametrize(
    ("response", "gold", "score"),
    [
        ("<answer>blue bus</answer>", "B", 1),
        (r"So \boxed{B}", "B", 1),
        ("Answer[AB]", "B", 0),
        ("<answer>A</answer>", "AC", 0),
    ],
)
def test_a_choice_is_right_alone(response: str, gold: str, score: float) -> None:
    assert judged(CHOICE | {"answer": gold}, response) == score


@pytest.mark.parametrize(
    ("gold", "right", "wrong"),
    [
        ("12", ["12"], ["2"]),
        ("1.5", ["1.50 m"], ["1"]),
        ("yes", ["yes it is"], [""]),
        ("the blue bus", ["bus"], ["us"]),
        ("?", ["?"], ["!"]),
        ("A", ["A."], ["B."]),
        ("1.5 million", ["about 1.5 million"], ["15 million"]),
        ("(3, 4)", ["3, 4.0", "x = 3 and y = 4"], ["3", "(4, 3)", "(3, 4, 5)"]),
        ("3 and 4", ["3, 4"], ["3"]),
        ("100, 200", ["100,200"], []),
        ("100200", ["100,200"], []),
        ("1,234; 5,678", ["1234; 5678"], []),
        (f"{'1' * 200}, {'2' * 200}", [], ["none"]),
    ],
)
def test_an_open_number_is_equal_and_a_text_may_contain_the_other(
    gold: str, right: list[str], wrong: list[str]
) -> None:
    assert [judged(OPEN | {"answer": gold}, f"<answer>{given}</answer>") for given in right] == [1] * len(right)
    assert [judged(OPEN | {"answer": gold}, f"<answer>{given}</answer>") for given in wrong] == [0] * len(wrong)


@pytest.mark.parametrize(
    ("response", "gold"),
    [
        ("I compared option B with the others.\nThere are 12 cars.\nThe answer is 12", "12"),
        ("Looking at choice A, it shows a dog.\n\na dog", "dog"),
        (r"Of choice A: \boxed{12}", "12"),
    ],
)
def test_a_letter_is_no_answer_to_an_open_question(response: str, gold: str) -> None:
    item = BENCHMARK.item(OPEN | {"answer": gold})
    said = (Message(role="user", content="How many?"), Message(role="assistant", content=response))
    given = Trajectory(item_id=item.id, status=Status.OK, answer=BENCHMARK.answer(response), messages=said)
    score = BENCHMARK.score(item, given)
    assert score.hard == 1.0
    # A judge is asked about the same words.
    assert score.feedback.endswith(f'answered "{BENCHMARK.grading(item, given).answer}"')


def test_the_text_of_an_option_may_begin_with_an_article() -> None:
    for reply in ("The answer is A Tree.", "Answer: A tree", "B. A tree"):
        assert judged(CHOICE | {"options": ["(A) a bush", "(B) a tree"]}, reply) == 1
        assert judged(CHOICE | {"options": ["(A) a bush", "(B) a tree"], "answer": "A"}, reply) == 0


def judged(record: JsonObject, response: str) -> float:
    item = BENCHMARK.item(record)
    given = Trajectory(item_id=item.id, status=Status.OK, answer=BENCHMARK.answer(response))
    score = BENCHMARK.score(item, given)
    assert score.hard == score.soft
    return score.hard


def test_pictures_stand_where_the_question_names_them_and_the_others_behind_it() -> None:
    item = BENCHMARK.item(CHOICE)
    system, user = BENCHMARK.messages(item.public, "the skill")
    assert (system.role, system.content, user.role) == ("system", "the skill", "user")
    assert user.content.startswith(
        "Which bus of [picture: picture-2.png] is in [picture: picture-1.jpg]?\n"
        "Picture 3: [picture: picture-3.png]\n\n(A) red bus\n(B) blue bus\n(C) no bus\n\nReply"
    )
    assert item.id == "s:t:3"
    assert [file.path for file in item.files if file.picture] == ["a/1.jpg", "a/2.png", "a/3.png"]


@pytest.mark.parametrize("options", [["(A) a {image#2}", "(B) {image#3}"], ["(A) a <image>", "(B) <image>"]])
def test_options_that_the_question_ends_with_are_not_listed_again(options: list[str]) -> None:
    question = "Which is {image#1}? (A) a {image#2} (B) {image#3}"
    item = BENCHMARK.item(CHOICE | {"question": question, "options": options})
    assert BENCHMARK.task(item.public).startswith(
        "Which is [picture: picture-1.jpg]? (A) a [picture: picture-2.png] (B) [picture: picture-3.png]\n\nReply"
    )
    assert judged(CHOICE | {"question": question, "options": options}, "<answer>B</answer>") == 1


def test_options_without_letters_in_order_are_listed_whatever_the_question_holds() -> None:
    for options in (["1", "2", "12"], ["(B) 1", "(A) 2"]):
        record = CHOICE | {"question": "How many of (B) 1, (A) 2 or 12?", "options": [*options], "answer": "A"}
        assert f"\n\n(A) {options[0]}\n(B) {options[1]}\n" in BENCHMARK.task(BENCHMARK.item(record).public)


STEPS = [
    [{"reasoning step": n, "rationale": f"see {n}", "rationale_fix": "look at 2" if n == 2 else ""} for n in range(4)],
    [{"reasoning step": 1, "rationale": "guess"}, {"reasoning step": 2, "rationale": "say B"}],
]


def test_a_judge_is_asked_for_the_steps_that_the_data_set_knows() -> None:
    item = BENCHMARK.item(CHOICE | {"reasoning_steps": STEPS})
    said = (Message(role="user", content="?"), Message(role="assistant", content="I look. <answer>B</answer>"))
    given = Trajectory(item_id=item.id, status=Status.OK, answer="B", messages=said)
    assert BENCHMARK.decides(item, given)
    asked = BENCHMARK.grading(item, given)
    # A path of two steps has none that counts.
    assert asked.paths == (("see 0", "see 1", "look at 2", "see 3"),)
    assert asked.answer == "I look. <answer>B</answer>"
    rollout = Rollout(trajectory=given, score=BENCHMARK.score(item, given))
    assert grading_request(BENCHMARK, EvaluationGroup(judge="rules_first"), item, rollout) is None
    assert grading_request(BENCHMARK, EvaluationGroup(judge="always"), item, rollout) == asked
    judge = ScriptedOptimizer({"taken": [{"path": 0, "step": 2, "quote": "I look. <answer>"}]})
    found = with_grade(rollout, lambda: grade(judge, asked)).score
    assert found is not None
    assert (found.hard, found.soft) == (1, 0.5)
    plain = BENCHMARK.grading(BENCHMARK.item(CHOICE), given)
    assert (plain.paths, plain.answer, plain.references) == ((), "B", ("B",))
    assert "steps" not in BENCHMARK.item(CHOICE).reference


SUBTASKS = {"buses": 10, "maps": 20, "stairs": 30}


def record(name: str) -> dict[str, Any]:
    return {**CHOICE, "subtask": name, "index": 1, "image_paths": ["images/1.png", "images/2.png"]}


def check(uri: str) -> None:
    found = {item.id: [*pictures.values()] for item, pictures in loaded("mmrb", uri)}
    assert found == {f"s:{name}:1": [picture(shade), picture(shade + 1)] for name, shade in SUBTASKS.items()}


def test_the_folders_of_the_sub_tasks_load_with_their_pictures(tmp_path: Path) -> None:
    for name, shade in SUBTASKS.items():
        folder = tmp_path / "data" / name
        (folder / "images").mkdir(parents=True)
        (folder / f"{name}_human.json").write_text(json.dumps([record(name)]))
        for number in (1, 2):
            (folder / "images" / f"{number}.png").write_bytes(picture(shade + number - 1))
    check(f"{tmp_path}/data/*/*_human.json")


def test_the_shards_of_a_table_load_with_their_embedded_pictures(tmp_path: Path) -> None:
    for number, (name, shade) in enumerate(SUBTASKS.items()):
        embedded = [{"bytes": picture(shade + place), "path": f"{place}.png"} for place in range(2)]
        columns = {key: [value] for key, value in record(name).items()} | {"images": [embedded]}
        pa.parquet.write_table(pa.table(columns), tmp_path / f"test-0000{number}-of-00003.parquet")
    check(f"{tmp_path}/test-*.parquet")
