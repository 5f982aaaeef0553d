"""What rollouts are stored under: the program, its limits, and the corpus of the run."""

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.train_config import TrainConfig, nest
from skillopt_airflow.core.errors import ConfigError, DataError, ImageMissing
from skillopt_airflow.core.values.skill import SkillDocument
from skillopt_airflow.core.values.types import Split
from skillopt_airflow.rollout.settings import PROTOCOL
from skillopt_airflow.training.prepare.preparation import prepare_training
from skillopt_airflow.training.rollouts.workload import ChunkWorkload, check_program, image_to_use, rollout_program
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.run_documents import stored_corpus
from tests.training.in_process import Training, configured

CONFIG = configured("searchqa", {})
FOLDER = benchmarks.folder("searchqa")


def test_a_rebuilt_image_of_the_project_pays_nothing_again_and_another_adapter_does(folder: Path) -> None:
    alone = rollout_program(CONFIG, "sha256:one", folder)
    assert alone.startswith(f"protocol-{PROTOCOL}/adapter-")
    assert rollout_program(CONFIG, "sha256:other", folder) == alone
    # Files that it may import count with it.
    found = {alone}
    for name, text in (("scoring.py", "RIGHT = 1\n"), ("scoring.py", "RIGHT = 2\n"), ("adapter.py", "BENCHMARK = 2\n")):
        (folder / name).write_text(text, encoding="utf-8")
        found.add(rollout_program(CONFIG, "sha256:one", folder))
    assert len(found) == 4


def test_a_run_whose_image_was_built_anew_goes_on_with_the_present_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    training = Training.of()
    (ref, *_) = training.prepare()
    run = training.run

    def used(image: str, here: bool) -> str:
        monkeypatch.setattr("skillopt_airflow.sandbox.docker.connection.has_image", lambda *_: here)
        run.store.put_model(run.keys.config, run.record.model_copy(update={"image": image}))
        del run.record
        return ChunkWorkload(run, ref, "run").image

    monkeypatch.setattr("skillopt_airflow.sandbox.docker.connection.image_digest", lambda *_: "sha256:new")
    assert used("sha256:old", here=True) == "sha256:old"
    # What a registry has can be pulled.
    assert used("registry.example/sandbox@sha256:old", here=False) == "registry.example/sandbox@sha256:old"
    assert "is gone" not in caplog.text
    assert used("sha256:old", here=False) == "sha256:new"
    assert "sha256:old is gone" in caplog.text
    monkeypatch.setattr("skillopt_airflow.training.rollouts.workload.PROTOCOL", 0)
    with pytest.raises(ConfigError, match=rf"protocol-0/.* not protocol-{PROTOCOL}/"):
        used("sha256:old", here=True)


def test_an_image_of_the_users_own_that_is_lost_has_no_substitute(monkeypatch: pytest.MonkeyPatch) -> None:
    config = configured("searchqa", {"sandbox.image": "mine:latest"})
    monkeypatch.setattr("skillopt_airflow.sandbox.docker.connection.has_image", lambda *_: False)
    monkeypatch.setattr("skillopt_airflow.sandbox.docker.connection.image_digest", lambda *_: "sha256:new")
    with pytest.raises(ImageMissing, match="sha256:old"):
        image_to_use("sha256:old", "sha256:old", config, FOLDER)


def test_a_run_is_not_scored_by_what_was_edited_since_it_began(tmp_path: Path) -> None:
    shutil.copytree(FOLDER, tmp_path, dirs_exist_ok=True)
    program = rollout_program(CONFIG, "sha256:one", tmp_path)
    check_program("sha256:one", program, CONFIG, tmp_path, "run")
    (tmp_path / "scorer.py").write_text("# beside the adapter\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="Restore these files"):
        check_program("sha256:one", program, CONFIG, tmp_path, "run")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A benchmark's folder with files that make no rollout."""
    (tmp_path / "adapter.py").write_text("BENCHMARK = 1\n", encoding="utf-8")
    (tmp_path / "make_splits.py").write_text("", encoding="utf-8")
    return tmp_path


def test_with_an_image_of_the_users_own_only_files_that_it_lacks_count(folder: Path) -> None:
    config = configured("searchqa", {"sandbox.image": "registry.example/mine:1"})
    (folder / "worlds.py").write_text("", encoding="utf-8")
    assert rollout_program(config, "sha256:one", folder) == "sha256:one"
    (folder / "scoring.py").write_text("RIGHT = 1\n", encoding="utf-8")
    one = rollout_program(config, "sha256:one", folder)
    assert one.startswith("sha256:one/beside-")
    (folder / "adapter.py").write_text("BENCHMARK = 2\n", encoding="utf-8")
    assert rollout_program(config, "sha256:one", folder) == one
    (folder / "scoring.py").write_text("RIGHT = 2\n", encoding="utf-8")
    assert rollout_program(config, "sha256:one", folder) != one


def test_a_declared_task_counts_by_its_section(tmp_path: Path) -> None:
    section = {"task": {"prompt": "{{ q }}", "reference": "a", "score": {"by": "exact"}}}
    config = TrainConfig.from_layers(section)
    program = rollout_program(config, "sha256:one", tmp_path)
    assert program.startswith(f"protocol-{PROTOCOL}/task-")
    other = TrainConfig.from_layers(section, nest({"task.score.normalized": True}))
    assert rollout_program(other, "sha256:one", tmp_path) != program
    grouped = TrainConfig.from_layers(section, nest({"task.group": "document"}))
    assert rollout_program(grouped, "sha256:one", tmp_path) == program
    mine = TrainConfig.from_layers(section, nest({"sandbox.image": "registry.example/mine:1"}))
    assert rollout_program(mine, "sha256:one", tmp_path) == program.replace(f"protocol-{PROTOCOL}", "sha256:one")


def test_a_run_keeps_the_program_that_it_was_prepared_with() -> None:
    training = Training.of()
    training.prepare()
    run = training.run
    assert run.rollout_key(Split.VAL, run.skill(0), 0).image == rollout_program(CONFIG, "", FOLDER)


SKILL = SkillDocument("# Skill\n")


@pytest.fixture
def documents(tmp_path: Path) -> Path:
    made = tmp_path / "documents"
    made.mkdir()
    (made / "a.txt").write_text("alpha")
    return made


def prepared(benchmark: str = "searchqa", **options: Any) -> Training:
    training = Training.of(benchmark, **options)
    training.prepare()
    return training


def settings_of(training: Training) -> str:
    return training.run.rollout_key(Split.VAL, SKILL, 0).settings_sha256


def test_a_run_without_a_corpus_stores_none() -> None:
    training = prepared()
    assert training.run.record.corpus == ""
    assert stored_corpus(training.run) is None
    assert not training.store.list_keys("corpora/")


def test_rollouts_with_another_corpus_are_other_rollouts_and_a_run_keeps_its_own(documents: Path) -> None:
    training = prepared(data__corpus=str(documents))
    without, one = settings_of(prepared()), settings_of(training)
    assert settings_of(prepared(data__corpus=str(documents))) == one != without
    (documents / "a.txt").write_text("beta")
    assert settings_of(prepared(data__corpus=str(documents))) not in {one, without}
    corpus = stored_corpus(training.run)
    assert [(file.name, file.size) for file in corpus.manifest.files] == [("a.txt", 5)]
    assert b"alpha" in b"".join(corpus.archives())


def test_who_uses_the_corpus_tells_the_cleanup_so_and_says_so_where_it_came_too_late(documents: Path) -> None:
    training = prepared(data__corpus=str(documents))
    key, later = f"corpora/{training.run.record.corpus}/manifest.json", datetime(2100, 1, 1, tzinfo=UTC)
    training.store.clock = lambda: later
    stored_corpus(training.run)
    assert training.store.written[key] == later
    assert training.store.list_older("corpora/", later) == [key.replace("manifest.json", "0000.tar")]
    training.store.delete(key)
    with pytest.raises(DataError, match=r"retention\.trajectory_days"):
        stored_corpus(training.run)


def test_a_run_with_steps_is_not_prepared_again_with_another_corpus(documents: Path) -> None:
    small = {"train__num_epochs": 1, "train__steps_per_epoch": 1, "evaluation__eval_test": False}
    training = Training.of(data__corpus=str(documents), **small)
    training()
    prepare_training(training.run, training.config)
    (documents / "b.txt").write_text("beta")
    with pytest.raises(ConfigError, match="changed since: the corpus"):
        prepare_training(training.run, training.config)


def test_a_run_goes_on_with_a_changed_program_only_when_told_to(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    training = Training.of(train__num_epochs=1, train__steps_per_epoch=1, evaluation__eval_test=False)
    training()
    before = training.run.record.program
    monkeypatch.setattr("skillopt_airflow.training.rollouts.workload.PROTOCOL", PROTOCOL + 1)
    with pytest.raises(ConfigError, match="the program of its rollouts"):
        prepare_training(training.run, training.config)
    prepare_training(training.run, training.config, accepts_program=True)
    after = TrainingRun(training.run.ref, training.models).record.program
    assert after == before.replace(f"protocol-{PROTOCOL}", f"protocol-{PROTOCOL + 1}")
    assert f"from {before} to {after}" in caplog.text


def settings_under(benchmark: str, **options: Any) -> str:
    return settings_of(prepared(benchmark, evaluation__val_limit=None, evaluation__test_limit=None, **options))


@pytest.mark.nightly
@pytest.mark.parametrize("limit", [{"sandbox__code_timeout": 5}, {"sandbox__memory": "1g"}], ids=str)
def test_the_limits_of_code_shape_rollouts_where_some_runs(limit: dict[str, Any]) -> None:
    assert settings_under("spreadsheetbench", **limit) != settings_under("spreadsheetbench")
    assert settings_under("searchqa", **limit) == settings_under("searchqa")
    # An agent's CLI runs code whatever the benchmark.
    cli = {"model__harness": "codex"}
    assert settings_under("searchqa", **limit, **cli) != settings_under("searchqa", **cli)
