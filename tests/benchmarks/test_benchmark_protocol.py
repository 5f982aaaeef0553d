"""What each benchmark and its sample, and the one to copy, has to offer."""

import inspect
import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from local.standin.answering import agrees, words_for
from local.standin.known_items import of_benchmark
from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import DATA_SPLITS, Item, JsonObject, Split, Status, Trajectory
from skillopt_airflow.tasks.protocols import Benchmark
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config
from tests.benchmarks import test_babyvision as babyvision
from tests.benchmarks import test_livemathematicianbench as livemathematicianbench
from tests.benchmarks import test_mathverse as mathverse
from tests.benchmarks import test_mmrb as mmrb
from tests.benchmarks import test_officeqa as officeqa
from tests.benchmarks import test_sealqa as sealqa
from tests.benchmarks import test_searchqa as searchqa
from tests.benchmarks import test_spreadsheetbench as spreadsheetbench

FOLDER = benchmarks.project() / "benchmarks"
COPY = "copied_template"
MAX_BYTES = 20_000_000
BY_DEEDS = {"alfworld", "spreadsheetbench", "swebench"}
"""Benchmarks whose items are not answered by words."""
BLANK = babyvision.RECORD | {"ansType": "blank"}
MCQ = livemathematicianbench.RECORD["mcq"]
BAD_MCQ = (
    {"choices": "BCDE"},
    {"choices": [{}]},
    {"correct_choice": "A"},
    {"choices": [{"text": f"{n}"} for n in range(26)]},
)
BROKEN: list[tuple[str, JsonObject, dict[str, list[Any]]]] = [
    ("alfworld", {"id": "train:0000"}, {"gamefile": [None]}),
    ("babyvision", babyvision.RECORD, {"taskId": [None], "question": [""], "image": [""], "ansType": ["essay"]}),
    ("babyvision", babyvision.RECORD, {"choiceAns": [3, -1, "A"], "options": [[], ["x"] * 27]}),
    ("babyvision", BLANK, {"blankAns": [""]}),
    ("livemathematicianbench", livemathematicianbench.RECORD, {"no": [True], "month": [" "], "mcq": [None]}),
    ("livemathematicianbench", livemathematicianbench.RECORD, {"mcq": [MCQ | bad for bad in BAD_MCQ]}),
    ("mathverse", mathverse.RECORD, {"problem_index": [None], "problem_version": [""], "question_type": ["essay"]}),
    ("mathverse", mathverse.RECORD, {"answer": [" ", "north"]}),
    ("mathverse", mathverse.RECORD | {"image": ""}, {"question": [""]}),
    ("mmrb", mmrb.CHOICE, {"index": [None], "options": ["A or B", ["(A) x", 5]], "answer": ["D"], "image_paths": [[]]}),
    ("mmrb", mmrb.CHOICE, {"question": [""], "reasoning_steps": [[["look"]]]}),
    ("mmrb", mmrb.OPEN, {"answer": [None]}),
    ("officeqa", officeqa.RECORD, {"uid": [""], "question": [" "], "answer": [""]}),
    ("officeqa", officeqa.RECORD, {"source_files": [3], "source_docs": [None]}),
    ("sealqa", sealqa.RECORD, {"search_results": [[7]], "12_docs": ["[{"], "question": [" "], "answer": [None]}),
    ("searchqa", searchqa.RECORD, {"id": [7], "question": [" "], "context": [None]}),
    ("searchqa", searchqa.RECORD, {"answers": [[], "Nile", ["Nile", " "]]}),
    (
        "spreadsheetbench",
        spreadsheetbench.RECORD,
        {"id": [True, " "], "instruction": [""], "answer_position": ["the last row"]},
    ),
]
"""Records, and values of their keys that no item can be made of."""
METHODS = [name for name, member in vars(Benchmark).items() if inspect.isfunction(member) and name[0] != "_"]


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Benchmark:
    """The template as a contributor's own folder, found in the way that every benchmark is found."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(FOLDER / "_template", tmp_path / COPY, ignore=ignored)
    monkeypatch.setenv(benchmarks.LIST_VARIABLE, str(tmp_path / COPY))
    return benchmarks.load(COPY)


def read(folder: Path, split: Split) -> list[JsonObject]:
    records: list[JsonObject] = json.loads((folder / "sample" / split / "items.json").read_text(encoding="utf-8"))
    return records


def satisfies_protocol(benchmark: Benchmark) -> None:
    for column in (*benchmark.text_columns, *benchmark.list_columns):
        assert isinstance(column, str)
    for name in METHODS:
        wanted = list(inspect.signature(getattr(Benchmark, name)).parameters)[1:]
        assert list(inspect.signature(getattr(benchmark, name)).parameters) == wanted


@pytest.mark.parametrize("name", benchmarks.names())
def test_every_benchmark_satisfies_the_protocol_and_has_what_a_run_reads(name: str) -> None:
    benchmark = benchmarks.load(name, benchmark_config(name).task)
    satisfies_protocol(benchmark)
    with pytest.raises(DataError, match="expected"):
        benchmark.identity({})
    assert (FOLDER / name / "README.md").is_file()
    assert (FOLDER / name / "benchmark.yaml").is_file()
    assert (FOLDER.parent / "skills" / name / "initial.md").is_file()
    assert benchmarks.guidance(name)["reflect"]


@pytest.mark.parametrize(("name", "record", "values"), BROKEN)
def test_a_broken_record_is_named_by_its_key(name: str, record: JsonObject, values: dict[str, list[Any]]) -> None:
    for key, bad in values.items():
        for value in bad:
            with pytest.raises(DataError, match=key):
                benchmarks.load(name).item(record | {key: value})


@pytest.mark.parametrize("name", benchmarks.names())
def test_a_sample_is_small_and_whole_and_each_item_can_be_answered_right_and_wrong(name: str) -> None:
    benchmark, known = benchmarks.load(name, benchmark_config(name).task), [*of_benchmark(name)]
    item_ids = [one.item.id for one in known]
    assert len(item_ids) == len(set(item_ids)) >= 24
    records = [record for split in DATA_SPLITS for record in read(FOLDER / name, split)]
    assert {benchmark.item(record).id for record in records} == {*map(benchmark.identity, records)}
    files = [path for path in (FOLDER / name / "sample").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < MAX_BYTES
    for one in known[:40]:
        assert all(one.files((*one.item.files, *one.item.reference_files)).values())
    for one in known if name not in BY_DEEDS else ():
        assert agrees(one, words_for(one, right=True)), one.item.id
        assert not agrees(one, words_for(one, right=False)), one.item.id


def test_the_template_is_no_benchmark_and_its_copy_is_and_configures_a_training(copy: Benchmark) -> None:
    assert benchmarks.names() == [COPY]
    satisfies_protocol(copy)
    layer = yaml.safe_load((FOLDER / "_template" / "benchmark.yaml").read_text(encoding="utf-8"))
    config = TrainConfig.from_layers(layer)
    assert (FOLDER / "_template" / config.data.uri).is_dir()
    assert config.data.split_mode == "split_dir"


def test_the_template_scores_its_own_sample(copy: Benchmark) -> None:
    items = [copy.item(record) for split in DATA_SPLITS for record in read(FOLDER / "_template", split)]
    assert len({item.id for item in items}) == len(items)
    for item in items:
        words = item.reference["words"]
        assert isinstance(words, list)
        system, user = copy.messages(item.public, "the skill")
        assert (system.content, user.role) == ("the skill", "user")
        assert not any(str(word) in user.content for word in words)
        for word in words:
            assert score(copy, item, f"It is <answer>{word}</answer>.") == (1.0, 1.0)
        hard, soft = score(copy, item, "I do not know")
        assert hard == 0.0
        assert 0.0 <= soft < 1.0
    with pytest.raises(DataError, match="words"):
        copy.item({"id": "word-1", "letters": "abc", "words": ["dog"]})


def score(benchmark: Benchmark, item: Item, response: str) -> tuple[float, float]:
    answer = benchmark.answer(response)
    judged = benchmark.score(item, Trajectory(item_id=item.id, status=Status.OK, answer=answer))
    return judged.hard, judged.soft
