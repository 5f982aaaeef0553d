import shutil
from pathlib import Path

import pytest

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.train_config import TrainConfig, nest
from skillopt_airflow.core.errors import ConfigError, ImageMissing
from skillopt_airflow.core.values.types import Split
from skillopt_airflow.rollout.settings import PROTOCOL
from skillopt_airflow.training.rollouts.workload import ChunkWorkload, check_program, image_to_use, rollout_program
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
    check_program("sha256:one", program, CONFIG, tmp_path)
    (tmp_path / "scorer.py").write_text("# beside the adapter\n", encoding="utf-8")
    with pytest.raises(ConfigError, match="Restore these files"):
        check_program("sha256:one", program, CONFIG, tmp_path)


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
