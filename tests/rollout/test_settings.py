"""What a rollout needs: the image's program, what a benchmark can have, and few imports in every container."""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.livemathematicianbench.adapter import BENCHMARK as WITHOUT_TOOLS
from benchmarks.sealqa.adapter import BENCHMARK as SEARCHING
from benchmarks.searchqa.adapter import BENCHMARK as WITH_TOOLS
from local import image
from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.harnesses import HARNESSES, HarnessName
from skillopt_airflow.core.config.resource_groups import ModelGroup, SearchGroup
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.values.types import Status
from skillopt_airflow.rollout.program import run
from skillopt_airflow.rollout.requirements import check_requirements, check_search
from skillopt_airflow.rollout.settings import PROTOCOL, image_program
from skillopt_airflow.tasks.declared_task import declared_benchmark
from skillopt_airflow.tasks.protocols import Benchmark
from skillopt_airflow.tasks.task_group import task_of
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config
from skillopt_airflow.training.run.run import rollout_settings
from tests.gateway.scripted_provider import ScriptedProvider, completion
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
    told = rollout_settings(benchmark, config, "openai-chat", "m")
    assert told.image_program == image_program(benchmark, declared=False)
    mine = TrainConfig.from_layers(config.model_dump(), {"sandbox": {"image": "registry.example/mine:1"}})
    assert rollout_settings(benchmark, mine, "openai-chat", "m").image_program == ""


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


def declared_with(**section: object) -> Benchmark:
    task = {"prompt": "x", "reference": "y", "score": {"by": "exact"}} | section
    section_read = task_of(task)
    assert section_read is not None
    return declared_benchmark(section_read)


FILES, PICTURES = declared_with(files=["path"]), declared_with(pictures=["path"])


@pytest.mark.parametrize(
    ("group", "benchmark", "words"),
    [
        ({"harness": "chat"}, FILES, r"model\.harness = 'chat': .*task\.files"),
        ({"harness": "tools", "max_turns": 2}, declared_with(), "no tools"),
        ({"harness": "tools", "max_turns": 5}, WITHOUT_TOOLS, "no tools"),
        ({"harness": "tools"}, WITH_TOOLS, r"model\.max_turns = 1"),
    ],
)
def test_a_harness_that_a_benchmark_cannot_have(group: dict[str, Any], benchmark: Benchmark, words: str):
    with pytest.raises(ConfigError, match=words):
        check_requirements(ModelGroup(**group), benchmark)


@pytest.mark.parametrize("harness", HARNESSES)
def test_files_need_an_agent_and_pictures_and_other_items_none(harness: HarnessName):
    group = ModelGroup(harness=harness, max_turns=2)
    check_requirements(group, PICTURES)
    check_requirements(group, FILES if harness != "chat" else WITHOUT_TOOLS)
    check_requirements(group, WITHOUT_TOOLS if harness != "tools" else WITH_TOOLS)


def test_a_search_needs_a_benchmark_that_searches():
    with pytest.raises(ConfigError, match="the tools of this benchmark do not search"):
        check_search(SearchGroup(conn_id="skillopt_search"), WITH_TOOLS)
    check_search(SearchGroup(conn_id="skillopt_search"), SEARCHING)
    check_search(SearchGroup(), WITH_TOOLS)


HEAVY = {
    *("anthropic", "openai", "pydantic_ai"),
    *("airflow", "httpx", "httpx2", "jinja2", "numpy", "opentelemetry", "pandas", "requests", "yaml"),
    "skillopt_airflow.core.config.train_config",
    "skillopt_airflow.tasks.task_group",
    "skillopt_airflow.rollout.harnesses.target_model",
}
PROGRAM = """
import asyncio, sys
from pathlib import Path
from skillopt_airflow.rollout.program import run
asyncio.run(run(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
print(*sys.modules)
"""


def imported(folder: Path, **settings: Any) -> set[str]:
    """Run the program on an item in a process of its own; return the modules that it imported."""
    item = {"id": "i-1", "public": {"question": "Which tower?", "context": "[DOC] Eiffel"}}
    inputs, outputs = program_inputs(folder / "in", [item], **settings), folder / "out"
    outputs.mkdir()
    with ScriptedProvider(lambda asked: completion("<answer>Eiffel</answer>")) as provider:
        command = [sys.executable, "-c", PROGRAM, inputs, outputs, provider.base_url.removesuffix("/v1")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert [(row.status, row.answer) for row in trajectories(outputs).values()] == [(Status.OK, "Eiffel")]
    return set(done.stdout.split())


def test_a_chat_imports_no_sdk_and_no_configuration(tmp_path: Path):
    assert not imported(tmp_path) & HEAVY


@pytest.mark.parametrize("name", [name for name, harness in HARNESSES.items() if harness.is_cli])
def test_an_agent_cli_imports_no_sdk(name: str):
    module = HARNESSES[name].runner.partition(":")[0]
    code = f"import sys, skillopt_airflow.rollout.program, {module}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not set(done.stdout.split()) & HEAVY
