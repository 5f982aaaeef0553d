"""Benchmarks by a yaml alone: a number, a choice, fields of a JSON object, files."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from skillopt_airflow.core.errors import ConfigError, DataError
from skillopt_airflow.core.values.types import Item, JsonObject, Status, Trajectory
from skillopt_airflow.rollout.workspace import ItemFolders
from skillopt_airflow.tasks.declared_task import (
    MAX_READ_CHARS,
    RIGHT,
    DeclaredFilesTask,
    JudgedTask,
    checked_prompt,
    choices_of,
    declared_benchmark,
    right_letters,
)
from skillopt_airflow.tasks.protocols import AsksJudge, Benchmark, OffersTools
from skillopt_airflow.tasks.scoring.text_match import Exact
from skillopt_airflow.tasks.task_group import TaskGroup, task_of

NUMBER: dict[str, Any] = {
    "prompt": "{{ question }}\n\nThink step by step, and give the number in the last line.",
    "reference": "answer",
    "answer": {"from": "last_line"},
    "score": {"by": "number"},
}
CHOICE: dict[str, Any] = {
    "id": "number",
    "prompt": '{{ question }}\n{% for one in options %}\n{{ "ABCDEFGHIJ"[loop.index0] }}. {{ one }}\n{%- endfor %}',
    "reference": "correct",
    "answer": {"from": "choice"},
    "score": {"by": "choice", "choices": "options"},
}
EXTRACTION: dict[str, Any] = {
    "id": "id",
    "prompt": "Give sender, date and total of this invoice as JSON.\n\n{{ text }}",
    "reference": "fields",
    "answer": {"from": "json"},
    "score": {
        "by": "json",
        "fields": {"sender": {"by": "exact", "normalized": True}, "total": {"by": "number", "absolute": 0.01}},
    },
}
FILES: dict[str, Any] = {
    "id": "id",
    "prompt": "{{ question }} The contract is in your files.",
    "reference": "answers",
    "score": {"by": "anls"},
    "files": ["contracts/{{ id }}-*.txt", "annexes"],
}
PICTURES: dict[str, Any] = {
    "id": "id",
    "prompt": "Is {{ plan }} part of {{ others[0] }}?",
    "reference": "answer",
    "score": {"by": "exact"},
    "pictures": ["plan", "others", "sites/{{ id }}.pdf"],
}
LISTED: dict[str, Any] = {
    "prompt": "{{ question }}",
    "reference": "answer",
    "alternatives": True,
    "score": {"by": "exact"},
}
NESTED: dict[str, Any] = {
    "id": "meta.key",
    "prompt": "{{ question.stem }} {{ question }}",
    "reference": "question.key",
    "score": {"by": "choice", "choices": "question.choices"},
}
SUM: JsonObject = {"question": "3 boxes of 6 eggs?", "answer": "3 x 6 = <<3*6=18>>18\n#### 18"}
CAPITAL: JsonObject = {"number": 7, "question": "Which is a capital?", "options": ["Lyon", "Rome"], "correct": "Rome"}
INVOICE: JsonObject = {
    "id": "i-1",
    "text": "ACME Ltd, 3 May, 1,204.50",
    "fields": {"sender": "ACME", "total": 1204.5, "x": 0},
}
CONTRACT: JsonObject = {"id": "c1", "question": "Who rents?", "answers": ["Ms Weber"], "annexes": ["a/plan 1.txt"]}

PLANS: JsonObject = {
    "id": "p1",
    "plan": "plans/the-left-one.tif#page=2",
    "others": ["a.jpeg", "b.webp"],
    "answer": "yes",
}


def benchmark(source: dict[str, Any]) -> Benchmark:
    task = task_of(source)
    assert task is not None
    return declared_benchmark(task)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ('["3 May", "May 3"]', ["3 May", "May 3"]),
        (" ['it\\'s', 4]", ["it's", 4]),
        (["a", "b"], ["a", "b"]),
        ("1,000", "1,000"),
    ],
)
def test_a_text_may_hold_the_list_of_alternatives(answer: JsonValue, expected: JsonValue) -> None:
    record: JsonObject = {"question": "?", "answer": answer}
    assert benchmark(LISTED).item(record).reference["reference"] == expected
    plain = benchmark(LISTED | {"alternatives": False})
    assert plain.item(record).reference["reference"] == answer


@pytest.mark.parametrize(
    ("source", "record", "response", "hard", "soft"),
    [
        (NUMBER, SUM, "18\nSo it is $18.00.", 1.0, 1.0),
        (NUMBER, SUM, "18\nI think so", 0.0, 0.0),
        (CHOICE, CAPITAL, "The answer is B.", 1.0, 1.0),
        (CHOICE, CAPITAL, "<answer>Rome</answer>", 1.0, 1.0),
        (CHOICE, CAPITAL, "A or B", 0.0, 0.0),
        (EXTRACTION, INVOICE, '{"sender": "Acme", "total": "1204.5"}', 1.0, 1.0),
        (EXTRACTION, INVOICE, 'So:\n```json\n{"sender": "ACME", "total": 12}\n```', 0.0, 0.5),
        (FILES, CONTRACT, "<answer>Ms. Weber</answer>", 0.0, 8 / 9),
        (FILES, CONTRACT, "<answer>ms weber</answer>", 1.0, 1.0),
    ],
)
def test_scores(source: dict[str, Any], record: JsonObject, response: str, hard: float, soft: float) -> None:
    task = benchmark(source)
    item = task.item(record)
    judged = task.score(item, Trajectory(item_id=item.id, status=Status.OK, answer=task.answer(response)))
    assert (judged.hard, judged.soft) == (hard, pytest.approx(soft))
    assert judged.feedback


def test_the_target_gets_the_skill_and_the_rendered_prompt_and_nothing_of_the_reference() -> None:
    task = benchmark(CHOICE)
    item = task.item(CAPITAL)
    system, user = task.messages(item.public, "the skill")
    assert (system.role, system.content) == ("system", "the skill")
    assert (user.role, user.content) == ("user", "Which is a capital?\n\nA. Lyon\nB. Rome")
    assert (item.id, item.reference) == ("7", {"reference": "Rome"})
    assert set(item.public) == {"prompt", "options"}


def test_a_group_is_the_text_or_number_of_its_column() -> None:
    grouped = benchmark(NUMBER | {"group": "document"})
    assert grouped.item(SUM | {"document": 12}).group == "12"
    assert grouped.item(SUM | {"document": " a "}).group == "a"
    assert benchmark(NUMBER).item(SUM | {"document": 12}).group == ""
    with pytest.raises(DataError, match=r"document: .*None"):
        grouped.item(SUM)

    # A record without an id is known by what it holds.
    task = benchmark(NUMBER)
    assert task.item(SUM).id == task.identity(dict(reversed(SUM.items())))
    assert task.identity(SUM) != task.identity(SUM | {"question": "another"})


ALL = [benchmark(source) for source in (NUMBER, CHOICE, EXTRACTION, FILES, PICTURES)]


@given(st.dictionaries(st.text(), st.text() | st.integers() | st.none(), max_size=4))
def test_any_record_is_an_item_or_an_error_that_says_why(record: JsonObject) -> None:
    for task in ALL:
        with pytest.raises(DataError, match=r"task\.|expected"):
            task.item(record)


@pytest.mark.parametrize(
    ("source", "record", "message"),
    [
        (NUMBER, {"answer": "18", "n": 1}, r"^task\.prompt: 'question' is undefined; .*: n$"),
        (NUMBER, {"question": "?"}, r"^task\.reference: .*'answer'.*: question\."),
        (NUMBER, {"question": "?", "answer": None}, r"^task\.reference: .*'answer'"),
        (NUMBER, SUM | {"answer": "many"}, r"^answer: .*'many'"),
        (CHOICE, CAPITAL | {"number": 1.5}, r"^number: .*1\.5"),
        (CHOICE, CAPITAL | {"options": "A, B"}, r"^correct: options: "),
        (CHOICE, CAPITAL | {"correct": "Paris"}, r"^correct: .*A to B"),
        (EXTRACTION, INVOICE | {"fields": {"sender": "A"}}, r"^fields: .*'total'"),
        (LISTED, {"question": "?", "answer": "['T.F. Riehl'\n 'T. F. Riehl']"}, "^answer: .*comma"),
        (LISTED, {"question": "?", "answer": "[print()]"}, r"^answer: expected a list in JSON or Python"),
        (LISTED, {"question": "?", "answer": "[]"}, r"^answer: .*at least one"),
        (FILES, CONTRACT | {"annexes": 5}, r"^annexes: "),
        (FILES, CONTRACT | {"annexes": ["甲.txt", "乙.txt"]}, r"^task\.files: '甲.txt' and '乙.txt'"),
        (FILES, CONTRACT | {"annexes": ["x/a.txt", "x/a.txt"]}, r"^task\.files: 'x/a\.txt' is named twice$"),
        (FILES, CONTRACT | {"annexes": ["a" * 101]}, r"^task\.files: .*100 characters"),
        (FILES, CONTRACT | {"annexes": ["x/.."]}, r"^task\.files: 'x/\.\.'"),
        (PICTURES, PLANS | {"plan": 5}, r"^plan: "),
        (PICTURES, PLANS | {"others": ["x.png"] * 51}, r"^task\.pictures: .*50 pictures, not 53"),
        (PICTURES, {"id": "p", "answer": "yes"}, r"^task\.prompt: 'plan' is undefined"),
    ],
)
def test_what_is_wrong_with_a_record_is_named_by_key(source: dict[str, Any], record: JsonObject, message: str) -> None:
    with pytest.raises(DataError, match=message):
        benchmark(source).item(record)


def test_a_prompt_that_shows_the_answer_or_is_no_text_is_refused() -> None:
    with pytest.raises(ConfigError, match=r'^task\.prompt = .*"\{\{ question \}\}"'):
        benchmark(NUMBER | {"prompt": {"question": None}})
    with pytest.raises(ConfigError, match=r"task\.prompt .* column answer"):
        benchmark(NUMBER | {"prompt": "{{ question }} {{ answer }}"}).item(SUM)


@pytest.mark.parametrize(
    ("prompt", "hint"),
    [
        ("Question: {question}", "{{ question }}"),
        ("${text}", "{{ text }}"),
        ("{{question}", "{{ question }}"),
        ("{{ Full name }}", '{{ record["Full name"] }}'),
        ("{{ 'question' }}", "{{ question }}"),
        ("What is the answer?", "{{ question }}"),
        ("{% for one in [1, 2] %}{{ one }}{% endfor %}", "{{ one }}"),
    ],
)
def test_a_prompt_that_reads_no_column_is_refused_with_a_hint(prompt: str, hint: str) -> None:
    task = TaskGroup.model_validate({"prompt": prompt, "reference": "answer", "score": {"by": "exact"}})
    with pytest.raises(ConfigError, match=rf"^task\.prompt.* Write a column as .*{re.escape(hint)}"):
        checked_prompt(task)
    for shown in ("pictures", "files"):
        if not prompt.startswith(("{{", "{%")):
            assert checked_prompt(task.model_copy(update={shown: ("scan",)})).columns == frozenset()


def test_columns_may_be_paths_into_nested_records() -> None:
    """The answer of a nested record isn't in the prompt either; the choices are those of CommonsenseQA."""
    choices = [{"label": "A", "text": "w"}, {"label": "B", "text": "x"}]
    record: JsonObject = {"meta": {"key": 5}, "question": {"stem": "Which?", "choices": [*choices], "key": "B"}}
    item = benchmark(NESTED).item(record)
    assert item.id == "5"
    assert item.reference == {"reference": "B"}
    assert item.public["question.choices"] == choices
    assert str(item.public["prompt"]).startswith("Which? {'stem': 'Which?'")
    assert "'key'" not in str(item.public["prompt"])
    with pytest.raises(DataError, match=r"^task\.reference: the record has no 'question\.key'"):
        benchmark(NESTED).item({"meta": {"key": 5}, "question": {"stem": "?", "choices": [*choices]}})


@pytest.mark.parametrize("column", ["answers", "answers.text"])
@pytest.mark.parametrize(
    "answers",
    [
        {"text": ["Rome", "Roma"], "answer_start": [5, 90]},
        [{"text": "Rome", "answer_start": 5}, {"text": "Roma", "answer_start": 90}],
    ],
)
def test_the_answers_of_squad_are_alternatives(column: str, answers: JsonValue) -> None:
    task = benchmark(LISTED | {"reference": column})
    item = task.item({"question": "Where?", "answers": answers})
    assert item.reference == {"reference": ["Rome", "Roma"]}
    assert task.score(item, Trajectory(item_id=item.id, status=Status.OK, answer="roma")).hard == 0.0
    assert task.score(item, Trajectory(item_id=item.id, status=Status.OK, answer="Roma")).hard == 1.0
    empty: JsonValue = {"text": [], "answer_start": []} if "." in column else []
    with pytest.raises(DataError, match=f"^{column}: "):
        task.item({"question": "Where?", "answers": empty})


@pytest.mark.parametrize(
    ("prompt", "shown"),
    [
        ("{% for name, value in record.items() %}{{ name }}: {{ value }};{% endfor %}", "Question: 6 * 7?;"),
        ('{{ record["Right answer"] }}', "'dict object' has no attribute 'Right answer'"),
    ],
)
def test_the_record_that_a_prompt_reads_has_no_answer(prompt: str, shown: str) -> None:
    task = benchmark({"prompt": prompt, "reference": "Right answer", "score": {"by": "exact"}})
    try:
        found = str(task.item({"Question": "6 * 7?", "Right answer": "42"}).public["prompt"])
    except DataError as error:
        found = str(error)
    assert shown in found
    assert "42" not in found


def test_files_go_to_the_target_under_plain_names() -> None:
    files = benchmark(FILES).item(CONTRACT).files
    assert [(file.name, file.path) for file in files] == [
        ("c1-.txt", "contracts/c1-*.txt"),
        ("plan_1.txt", "a/plan 1.txt"),
    ]
    one = benchmark(FILES).item(CONTRACT | {"annexes": "b.md"}).files[1]
    assert (one.name, one.path) == ("b.md", "b.md")


def test_pictures_stand_in_the_prompt_under_names_that_tell_nothing() -> None:
    task = benchmark(PICTURES)
    item = task.item(PLANS)
    assert [(file.name, file.path, file.picture) for file in item.files] == [
        ("picture-1.png", "plans/the-left-one.tif#page=2", True),
        ("picture-2.jpg", "a.jpeg", True),
        ("picture-3.png", "b.webp", True),
        ("picture-4.png", "sites/p1.pdf", True),
    ]
    # What the prompt does not show comes before it.
    assert task.messages(item.public, "Be short.")[1].content == (
        "[picture: picture-3.png]\n[picture: picture-4.png]\n"
        "Is [picture: picture-1.png] part of [picture: picture-2.jpg]?"
    )
    assert isinstance(task, OffersTools)
    assert task.tools(item.public, ItemFolders(Path(), Path(), 1.0)) == ()
    without = task.item(PLANS | {"plan": None, "others": ["a.png", "b.png"]} | {"plan": ""})
    assert [file.name for file in without.files] == ["picture-1.png", "picture-2.png", "picture-3.png"]


def test_the_tools_read_the_items_files_and_no_others(tmp_path: Path) -> None:
    text = "é" * MAX_READ_CHARS + "end"
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "b.txt").write_text(text, encoding="utf-8")
    (tmp_path / "in" / "a.txt").write_text("short", encoding="utf-8")
    (tmp_path / "secret.txt").write_text("secret")
    task = benchmark(FILES)
    assert isinstance(task, DeclaredFilesTask)
    assert isinstance(task, OffersTools)
    assert not isinstance(benchmark(NUMBER), OffersTools)
    assert task.task({"prompt": "Who?"}) == "Who?"
    list_files, read_file = task.tools({}, ItemFolders(tmp_path / "in", tmp_path / "out", 1.0))

    def read(*arguments: Any) -> str:
        return asyncio.run(read_file(*arguments))  # type: ignore[arg-type]

    assert asyncio.run(list_files()) == "a.txt\nb.txt"  # type: ignore[arg-type]
    assert read("a.txt") == "short"
    assert read("b.txt").endswith(f"é\n[3 more characters; read on with start={MAX_READ_CHARS}]")
    assert read("b.txt", MAX_READ_CHARS) == "end"
    (tmp_path / "in" / "c.txt").write_bytes("café".encode("cp1252"))
    (tmp_path / "in" / "d.txt").write_text("café", encoding="utf-8-sig")
    assert (read("c.txt"), read("d.txt")) == ("caf\N{REPLACEMENT CHARACTER}", "café")
    for name in ("../secret.txt", str(tmp_path / "secret.txt"), "e.txt"):
        with pytest.raises(FileNotFoundError, match=r"a\.txt, b\.txt, c\.txt, d\.txt"):
            read(name)


SECTION = TaskGroup(prompt="{{ image }}\n{{ question }}", reference="gold", score=Exact(), id="id", pictures=("image",))
RECORD: JsonObject = {"id": "a", "image": "pictures/one.png", "question": "How many?", "gold": "B"}


class KnowsTwoAnswers(JudgedTask):
    """Is certain of 4 and of 5."""

    def decision(self, answer: str, reference: JsonObject) -> bool | None:
        return {"4": True, "5": False}.get(answer)


TASK = KnowsTwoAnswers(SECTION, "Numbers count.")
ITEM = TASK.question_item(RECORD, "How many?", {"A": "3", "B": "4"}, frozenset("B"))


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
    item = TASK.question_item(RECORD | {"gold": "4"}, "How many?", {}, frozenset())
    assert TASK.grading(item, tried("four")).references == ("4",)
    assert TASK.grading(item, tried("four")).question == "How many?"
    assert TASK.score(item, tried("five")).feedback.startswith('expected "4"; answered "five"')


def test_the_target_sees_the_picture_and_nothing_of_the_reference() -> None:
    assert ITEM.public == {"prompt": "[picture: picture-1.png]\nHow many?"}
    assert [(file.path, file.picture) for file in ITEM.files] == [("pictures/one.png", True)]
    assert (choices_of(ITEM.reference), right_letters(ITEM.reference)) == ({"A": "3", "B": "4"}, frozenset("B"))
