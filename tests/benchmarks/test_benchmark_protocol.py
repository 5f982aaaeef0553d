"""What each benchmark, and the one to copy, has to offer."""

import inspect
import json
import shutil
from pathlib import Path

import pytest
import yaml

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.protocols import Benchmark
from skillopt_airflow.core.types import DATA_SPLITS, Item, Split, Status, Trajectory
from skillopt_airflow.training.benchmark_settings import benchmark_config

FOLDER = benchmarks.project() / "benchmarks"
COPY = "copied_template"
METHODS = [name for name, member in vars(Benchmark).items() if inspect.isfunction(member) and name[0] != "_"]


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Benchmark:
    """The template as a contributor's own folder, found in the way that every benchmark is found."""
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(FOLDER / "_template", tmp_path / COPY, ignore=ignored)
    monkeypatch.setenv(benchmarks.LIST_VARIABLE, str(tmp_path / COPY))
    return benchmarks.load(COPY)


def loaded(name: str) -> Benchmark:
    return benchmarks.load(name, benchmark_config(name).task)


def satisfies_protocol(benchmark: Benchmark) -> None:
    for column in (*benchmark.text_columns, *benchmark.list_columns):
        assert isinstance(column, str)
    for name in METHODS:
        wanted = list(inspect.signature(getattr(Benchmark, name)).parameters)[1:]
        assert list(inspect.signature(getattr(benchmark, name)).parameters) == wanted


@pytest.mark.parametrize("name", benchmarks.names())
def test_every_benchmark_satisfies_the_protocol(name: str) -> None:
    satisfies_protocol(loaded(name))


@pytest.mark.parametrize("name", benchmarks.names())
@pytest.mark.parametrize("split", list(DATA_SPLITS))
def test_every_sample_loads_under_the_identities_of_its_records(name: str, split: Split) -> None:
    benchmark = loaded(name)
    records = json.loads((FOLDER / name / "sample" / split / "items.json").read_text(encoding="utf-8"))
    assert [benchmark.item(record).id for record in records] == [benchmark.identity(record) for record in records]


@pytest.mark.parametrize("name", benchmarks.names())
def test_every_benchmark_refuses_a_record_without_identity(name: str) -> None:
    with pytest.raises(DataError, match="expected"):
        loaded(name).identity({})


@pytest.mark.parametrize("name", benchmarks.names())
def test_every_benchmark_has_what_a_run_reads(name: str) -> None:
    assert (FOLDER / name / "README.md").is_file()
    assert (FOLDER / name / "benchmark.yaml").is_file()
    assert (FOLDER.parent / "skills" / name / "initial.md").is_file()


def test_the_template_is_no_benchmark_and_its_copy_is(copy: Benchmark) -> None:
    assert benchmarks.names() == [COPY]
    satisfies_protocol(copy)


def test_the_template_configures_a_training() -> None:
    layer = yaml.safe_load((FOLDER / "_template" / "benchmark.yaml").read_text(encoding="utf-8"))
    config = TrainConfig.from_layers(layer)
    assert (FOLDER / "_template" / config.data.uri).is_dir()
    assert config.data.split_mode == "split_dir"


def test_the_template_scores_its_own_sample(copy: Benchmark) -> None:
    items = [item for split in DATA_SPLITS for item in sample(copy, split)]
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


def test_the_template_refuses_a_record_that_is_no_exercise(copy: Benchmark) -> None:
    with pytest.raises(DataError, match="words"):
        copy.item({"id": "word-1", "letters": "abc", "words": ["dog"]})


def sample(benchmark: Benchmark, split: Split) -> list[Item]:
    records = json.loads((FOLDER / "_template" / "sample" / split / "items.json").read_text(encoding="utf-8"))
    return [benchmark.item(record) for record in records]


def score(benchmark: Benchmark, item: Item, response: str) -> tuple[float, float]:
    answer = benchmark.answer(response)
    judged = benchmark.score(item, Trajectory(item_id=item.id, status=Status.OK, answer=answer))
    return judged.hard, judged.soft
