"""What a container imports for its harness: each library costs a part of a second, in every container."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from skillopt_airflow.core.config.harnesses import HARNESSES
from skillopt_airflow.core.values.types import Status
from tests.gateway.scripted_provider import ScriptedProvider, completion
from tests.rollout.single_item import program_inputs, trajectories

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
