from pathlib import Path

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config import TrainConfig, nest
from skillopt_airflow.core.types import Split
from skillopt_airflow.training.rollout_protocol import PROTOCOL, rollout_program
from tests.training.in_process import Training, configured

CONFIG = configured("searchqa", {})
FOLDER = benchmarks.folder("searchqa")


def test_a_rebuilt_image_of_the_project_pays_nothing_again(tmp_path: Path) -> None:
    program = rollout_program(CONFIG, "sha256:one", FOLDER)
    assert program == rollout_program(CONFIG, "sha256:other", FOLDER)
    assert program.startswith(f"protocol-{PROTOCOL}/adapter-")
    adapter = FOLDER / "adapter.py"
    (tmp_path / "adapter.py").write_text(adapter.read_text(encoding="utf-8") + "# changed\n", encoding="utf-8")
    assert rollout_program(CONFIG, "sha256:one", tmp_path) != program


def test_an_image_of_the_users_own_counts_by_its_digest() -> None:
    config = configured("searchqa", {"sandbox.image": "registry.example/mine:1"})
    assert rollout_program(config, "sha256:one", FOLDER) == "sha256:one"


def test_a_declared_task_counts_by_its_section(tmp_path: Path) -> None:
    section = {"task": {"prompt": "{{ q }}", "reference": "a", "score": {"by": "exact"}}}
    config = TrainConfig.from_layers(section)
    program = rollout_program(config, "sha256:one", tmp_path)
    assert program.startswith(f"protocol-{PROTOCOL}/task-")
    other = TrainConfig.from_layers(section, nest({"task.score.normalised": True}))
    assert rollout_program(other, "sha256:one", tmp_path) != program
    grouped = TrainConfig.from_layers(section, nest({"task.group": "document"}))
    assert rollout_program(grouped, "sha256:one", tmp_path) == program
    # As rollouts were stored before there were groups.
    assert program == f"protocol-{PROTOCOL}/task-805975613228"
    mine = TrainConfig.from_layers(section, nest({"sandbox.image": "registry.example/mine:1"}))
    assert rollout_program(mine, "sha256:one", tmp_path) == program.replace(f"protocol-{PROTOCOL}", "sha256:one")


def test_a_run_keeps_the_program_that_it_was_prepared_with() -> None:
    training = Training.of()
    training.prepare()
    run = training.run
    assert run.rollout_key(Split.VAL, run.skill(0), 0).image == rollout_program(CONFIG, "", FOLDER)
    run.store.put_model(run.keys.config, run.record.model_copy(update={"program": ""}))
    # As another process sees it.
    del run.record
    assert run.rollout_key(Split.VAL, run.skill(0), 0).image == run.record.image
