import asyncio
from pathlib import Path

import pytest

from local import image
from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.values.types import Status
from skillopt_airflow.rollout.program import run
from skillopt_airflow.rollout.settings import PROTOCOL, image_program
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config
from skillopt_airflow.training.run.run import rollout_settings
from tests.rollout.single_item import program_inputs, trajectories


def test_worker_and_image_are_of_one_program_until_either_gets_another_adapter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = image_program("alfworld", declared=False)
    assert here.startswith(f"protocol-{PROTOCOL}/image-")
    image.stage_program(image.ROOT, tmp_path)
    monkeypatch.setattr(benchmarks, "project", lambda: tmp_path / "skillopt_airflow" / "project")
    assert image_program("alfworld", declared=False) == here
    worlds = benchmarks.folder("alfworld") / "worlds.py"
    worlds.write_text(worlds.read_text(encoding="utf-8") + "# changed\n", encoding="utf-8")
    assert image_program("alfworld", declared=False) != here


@pytest.mark.parametrize("benchmark", ["searchqa", "alfworld"])
def test_the_projects_own_images_are_told_what_they_have_to_have(benchmark: str) -> None:
    config = benchmark_config(benchmark)
    told = rollout_settings(benchmark, config, "openai-chat", "m", 0)
    assert told.image_program == image_program(benchmark, declared=False)
    mine = TrainConfig.from_layers(config.model_dump(), {"sandbox": {"image": "registry.example/mine:1"}})
    assert rollout_settings(benchmark, mine, "openai-chat", "m", 0).image_program == ""


def test_of_a_declared_task_nothing_is_in_the_image() -> None:
    assert image_program("nowhere", declared=True) == f"protocol-{PROTOCOL}"


@pytest.mark.parametrize(
    ("benchmark", "said"), [("searchqa", f"(protocol-{PROTOCOL}/image-"), ("newer", "benchmark 'newer'")]
)
def test_an_image_of_another_program_makes_no_rollout(tmp_path: Path, benchmark: str, said: str) -> None:
    image_of = "protocol-0/image-000000000000"
    items = [{"id": name, "public": {}} for name in "ab"]
    inside = program_inputs(tmp_path / "in", items, benchmark=benchmark, image_program=image_of)
    out = tmp_path / "out"
    out.mkdir()
    asyncio.run(run(inside, out, "http://127.0.0.1:9"))
    rows = trajectories(out)
    assert {name: row.status for name, row in rows.items()} == dict.fromkeys("ab", Status.SANDBOX_ERROR)
    assert said in rows["a"].error
    assert f"not {image_of}): run `make up` or `make image NAME=...`" in rows["a"].error
