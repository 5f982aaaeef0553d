"""SealQA's records and scores; every question here is made up."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from benchmarks.sealqa.adapter import BENCHMARK
from local.standin.economy import World
from local.standin.known_items import KnownItems
from local.standin.standin_optimizer import Optimizer
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.values.types import Grade, Item, JsonObject, Status, Trajectory
from skillopt_airflow.rollout.workspace import ItemFolders
from skillopt_airflow.tasks.grading import score_by
from skillopt_airflow.training.prepare.records_to_items import read_splits

PAGES: list[Any] = [
    {"title": "Council", "url": "https://b.example/1", "date": "2026-05-01", "text": "Alma Grend is mayor."},
    {"title": "Courier", "url": "https://courier.example/2", "date": None, "text": "A quiet week."},
]
SECRET = "https://where-the-answer-is.example/"
RECORD: JsonObject = {
    "question": "Who is the mayor of Brindle Quay?",
    "answer": "Alma Grend",
    "urls": [SECRET],
    "search_results": PAGES,
    "freshness": "slow-changing",
    "question_types": ["temporal tracking"],
    "effective_year": "2026",
    "golds": [{"title": "gold", "url": SECRET, "text": "gold", "date": ""}],
    "canary": "a-canary",
}


def item(answer: str = "Alma Grend", **changed: Any) -> Item:
    return BENCHMARK.item(RECORD | {"answer": answer} | changed)


def prompt(one: Item) -> str:
    return BENCHMARK.messages(one.public, "Look twice.")[1].content


def trajectory(answer: str) -> Trajectory:
    return Trajectory(item_id="1", status=Status.OK, answer=answer)


def by_rules(gold: str, answer: str) -> tuple[bool, float]:
    """Whether the rules decide, and their score."""
    asked = item(gold)
    return BENCHMARK.decides(asked, trajectory(answer)), BENCHMARK.score(asked, trajectory(answer)).hard


@pytest.mark.parametrize(
    ("gold", "answer", "grade", "expected"),
    [
        ("Malia Obama and Sasha Obama", "sasha and malia obama", "correct", 1),
        ("Malia and Sasha", "Malia.", "incorrect", 0),
        ("Malia and Sasha", "I don't know", "not_attempted", 0),
        ("1.5 million", "15 million", "incorrect", 0),
    ],
)
def test_what_is_not_the_references_words_is_for_the_judge(gold: str, answer: str, grade: Any, expected: int) -> None:
    # By rules alone each is wrong: neither a part of the reference nor one that it is a part of will do.
    assert by_rules(gold, answer) == (False, 0.0)
    given = Grade(grade=grade, quote=answer, reason="so")
    score = score_by(given, BENCHMARK.score(item(gold), trajectory(answer)))
    # The three official grades stay apart.
    assert (score.hard, score.soft, score.grade) == (expected, expected, given)


def test_the_references_words_and_no_answer_need_no_judge() -> None:
    for gold, answer in (("Malia and Sasha", "malia and sasha."), ("The Tide", "tide"), ("$1.5", "1.5.")):
        assert by_rules(gold, answer) == (True, 1.0)
    assert by_rules("1998", " ") == (True, 0.0)


def test_the_judge_is_told_question_year_and_what_counts() -> None:
    assert BENCHMARK.answer("<answer>1997</answer> or rather <answer> 1998 </answer>\nBye") == "1998"
    assert BENCHMARK.answer("I looked.\n1998") == "1998"
    asked = BENCHMARK.grading(item(), trajectory("Grend"))
    assert (asked.references, asked.answer) == (("Alma Grend",), "Grend")
    assert "Brindle Quay" in asked.question
    assert "2026" in asked.question
    assert "not attempted" in asked.instructions
    judge = Optimizer(World(), KnownItems(list)).stages["judge_result"]
    assert judge('<references>["Alma Grend"]</references><answer>"grend, alma"</answer>')["grade"] == "incorrect"


def test_the_target_sees_the_pages_and_nothing_that_gives_the_answer_away() -> None:
    one = item()
    for text in ("Council", "2026-05-01", "Alma Grend is mayor.", "slow-changing", "temporal tracking", "Brindle"):
        assert text in prompt(one)
    assert SECRET not in json.dumps(one.public)
    assert "a-canary" not in json.dumps(one.public)
    assert "Alma Grend" not in json.dumps(item(search_results=[]).public)


def test_search_results_may_be_a_text_or_a_word_on_them() -> None:
    for written in (json.dumps(PAGES), str(PAGES)):
        assert item(search_results=written, question_types="['temporal tracking']").public == item().public
    shown = prompt(item(search_results="conflicting"))
    assert "<documents>" not in shown
    assert "Search results: conflicting" in shown
    assert "None" not in prompt(BENCHMARK.item({"question": "Who?", "answer": "Alma", "freshness": None}))
    assert "snippet of it" in prompt(item(search_results=[{"snippet": "snippet of it", "title": "x"}]))
    assert "just a text" in prompt(item(search_results=["just a text"]))
    # Long forms have documents of their own.
    long = prompt(item(**{"20_docs": [{"title": "twenty"}], "12_docs": [{"title": "twelve"}]}))
    assert "twelve" in long
    assert "twenty" not in long


def test_an_item_is_named_by_its_question() -> None:
    again = RECORD | {"answer": "another", "question": " Who is the mayor  of Brindle Quay?\n"}
    assert BENCHMARK.identity(RECORD) == BENCHMARK.identity(again) == item().id
    assert BENCHMARK.identity(RECORD | {"question": "Who?"}) != item().id


@pytest.mark.parametrize("suffix", ["parquet", "csv"])
def test_published_files_are_read(tmp_path: Path, suffix: str) -> None:
    rows = [RECORD | {"question": f"Who is mayor number {number}?"} for number in range(20)]
    path = tmp_path / f"seal.{suffix}"
    if suffix == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        pd.DataFrame([{key: str(value) for key, value in row.items()} for row in rows]).to_csv(path, index=False)
    config = TrainConfig.from_layers({"data": {"uri": str(path), "split_mode": "ratio"}})
    records = [one for split in read_splits("sealqa", config, None)[0].values() for one in split]  # type: ignore[arg-type]
    assert len(records) == 20
    assert all("Alma Grend is mayor." in prompt(BENCHMARK.item(one)) for one in records)


def test_its_tools_search_and_open_the_items_pages() -> None:
    one = item(search_results=[*PAGES, {"title": "Long", "url": "https://long.example", "text": "tide " * 200}])
    folders = ItemFolders(Path("/nowhere"), Path("/nowhere"), 1.0)
    search, open_page = BENCHMARK.tools(one.public, folders)
    found = asyncio.run(search("mayor"))
    assert found.startswith("[1]\ntitle: Council\nurl: https://b.example/1")
    assert "Courier" not in found
    assert asyncio.run(search("tide")).endswith("[...]")
    assert asyncio.run(open_page("https://long.example")) == ("tide " * 200).strip()
    assert asyncio.run(search("zebra")) == "Nothing was found."
    assert "documents" not in BENCHMARK.task(one.public)
