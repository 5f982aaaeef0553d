"""A table and a benchmark.yaml are trained on: the README's example, and items with files."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.train_config import TrainConfig, nest
from skillopt_airflow.core.errors import ConfigError, DataError
from skillopt_airflow.core.values.types import DATA_SPLITS, Split
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config
from skillopt_airflow.training.prepare.preparation import check_unchanged
from skillopt_airflow.training.report.reporting import write_report
from skillopt_airflow.training.run.run import TrainingRun
from tests.training.in_process import PROJECT, InProcessConnections, Training

EXAMPLE = PROJECT / "examples" / "capitals"
MODELS = {"model.target": "openai-chat:stand-in-target", "model.optimizer": "openai-chat:stand-in-optimizer"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The example as a folder of a user's, outside of the project."""
    shutil.copytree(EXAMPLE / "benchmark", tmp_path / "capitals")
    shutil.copy(EXAMPLE / "skill" / "initial.md", tmp_path / "capitals")
    monkeypatch.setenv(benchmarks.LIST_VARIABLE, str(tmp_path / "capitals"))
    return tmp_path / "capitals"


def training(**knobs: Any) -> Training:
    paths = MODELS | {path.replace("__", "."): value for path, value in knobs.items()}
    return Training(TrainConfig.from_layers(benchmark_config("capitals").model_dump(), nest(paths)), "capitals")


@pytest.mark.slow
def test_a_table_is_trained_on_and_its_skill_gets_better(folder: Path) -> None:
    done = training()
    done()
    assert {split: len(done.run.items(split)) for split in (Split.TRAIN, Split.VAL, Split.TEST)} == dict.fromkeys(
        (Split.TRAIN, Split.VAL, Split.TEST), 20
    )
    assert done.actions()[0] == "accept_new_best"
    seed, best = done.run.state(done.run.timeline[0]).best, done.state.best
    assert best.evaluation.mean("hard") >= seed.evaluation.mean("hard") + 0.2
    assert done.run.rollout_key(Split.VAL, done.run.skill(0), 0).image.partition("/")[2].startswith("task-")


def test_an_edit_of_the_file_does_not_reach_a_run_that_has_begun(folder: Path) -> None:
    begun = training()
    begun.prepare()
    path = folder / "benchmark.yaml"
    path.write_text(path.read_text(encoding="utf-8").replace("from: tags", "from: last_line"), encoding="utf-8")
    as_another_task_sees_it = TrainingRun(begun.run.ref, InProcessConnections(begun.store))
    assert as_another_task_sees_it.benchmark.answer("<answer>Rome</answer>\nbye") == "Rome"
    begun.store.put_text(begun.run.keys.runtime_state, "{}")
    with pytest.raises(ConfigError, match=r"changed since: task\.answer"):
        check_unchanged(begun.run, training().config)


@pytest.mark.parametrize(
    ("before", "after", "knobs", "message"),
    [
        ("id,question", "id,frage", {}, r"questions\.csv: train row 1 \(id .*\): task\.prompt: 'question'"),
        (",answer\n", ",antwort\n", {}, r"train row 1 \(id .*\): task\.reference: the record has no 'answer'"),
        ("", "", {"task__score": {"by": "number"}}, r"train row 1 \(id .*\): answer: expected one number, got"),
        ("", "", {"task__id": "answer"}, r"an earlier record has the same id "),
        ("", "", {"task__id": "key"}, r"no usable id \(key: expected"),
    ],
)
def test_what_is_wrong_with_a_table_is_named(
    folder: Path, before: str, after: str, knobs: dict[str, Any], message: str
) -> None:
    table = folder / "questions.csv"
    text = table.read_text(encoding="utf-8").replace(before, after, 1)
    row = text.splitlines()[-1].replace("capital", "CAPITAL", 1)
    table.write_text(f"{text}{row}\n", encoding="utf-8")
    if "task__id" not in knobs:
        knobs = knobs | {"task__id": None}
    with pytest.raises(DataError, match=message):
        training(**knobs).prepare()


@pytest.mark.nightly
def test_files_are_kept_for_the_target_and_need_an_agent(folder: Path) -> None:
    (folder / "pages").mkdir()
    (folder / "pages" / "all.txt").write_text("Rome is a capital.")
    files = {"task__files": ["pages/{{ 'all' }}.txt"], "model__harness": "tools", "model__max_turns": 3}
    prepared = training(**files)
    prepared.prepare()
    [file] = prepared.run.items(Split.VAL)[0].files
    assert (file.name, len(file.sha256)) == ("all.txt", 64)
    with pytest.raises(DataError, match=r"train row 1 \(id .*\): .*/pages/none\.txt: No such file"):
        training(**files | {"task__files": ["pages/{{ 'none' }}.txt"]}).prepare()


@pytest.mark.nightly
def test_items_of_a_group_are_one_observation_of_the_run(folder: Path) -> None:
    table = folder / "questions.csv"
    header, *rows = table.read_text(encoding="utf-8").splitlines()
    grouped = [f"{row},region {place % 12}" for place, row in enumerate(rows)]
    table.write_text("\n".join([f"{header},region", *grouped]) + "\n", encoding="utf-8")
    done = training(
        task__group="region", train__num_epochs=1, train__steps_per_epoch=1, publishing__gate_policy="strict"
    )
    done()
    evaluation = done.run.state(done.run.timeline[0]).best.evaluation
    assert set(evaluation.groups) == {item.id for item in done.run.item_refs(Split.VAL)}
    assert set(evaluation.groups.values()) <= {f"region {place}" for place in range(12)}
    assert sum(len({item.group for item in done.run.item_refs(split)}) for split in DATA_SPLITS) == 12
    history = write_report(done.run)
    assert [row.decision.against_current.groups for row in history.moments] == [len(set(evaluation.groups.values()))]
    assert "items of a group count as one observation" in done.store.get_text(done.run.keys.report)
