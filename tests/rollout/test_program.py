"""The program as the image gets it: copied to an empty folder, with only the sandbox's packages around it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import SecretStr
from uv import find_uv_bin

from include.core.types import Status, Trajectory
from include.models.upstream import Upstream
from include.rollout.settings import RolloutSettings
from include.sandbox.gateway import ModelGateway
from local import image
from tests.sandbox.scripted_provider import Asked, Reply, ScriptedProvider, completion

MODEL = "standin-target"


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a virtual environment with the sandbox's packages."""
    folder = tmp_path_factory.mktemp("sandbox") / "venv"
    subprocess.run([find_uv_bin(), "venv", "--quiet", "--python", sys.executable, folder], check=True)
    interpreter = folder / "bin" / "python"
    requirements = image.ROOT / image.REQUIREMENTS
    install = [find_uv_bin(), "pip", "install", "--quiet", "--python", interpreter, "--requirements", requirements]
    subprocess.run(install, check=True)
    return interpreter


def inputs(folder: Path, items: list[dict[str, object]]) -> Path:
    folder.mkdir()
    settings = RolloutSettings(
        benchmark="searchqa",
        dialect="openai-chat",
        model=MODEL,
        max_tokens=64,
        concurrency=2,
        call_timeout=30,
        max_attempts=1,
    )
    (folder / "settings.json").write_text(settings.model_dump_json())
    (folder / "skill.md").write_text("Be short.")
    (folder / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    return folder


def test_the_program_runs_alone(python: Path, tmp_path: Path):
    program, out = tmp_path / "program", tmp_path / "out"
    image.stage_program(image.ROOT, program)
    out.mkdir()
    items: list[dict[str, object]] = [
        {"id": f"i-{n}", "public": {"question": f"Q{n}?", "context": "[DOC] x"}} for n in range(3)
    ]
    items.append({"id": "broken", "public": {"question": "no context"}})

    def answer(asked: Asked) -> Reply:
        question = asked.body["messages"][1]["content"].split("Question: ")[1][:2]
        return completion(f"<answer>{question}</answer>")

    with ScriptedProvider(answer) as provider:
        upstream = Upstream(
            dialect="openai-chat", base_url=provider.base_url, model=MODEL, api_key=SecretStr("sk-outside")
        )
        socket = tmp_path / "model.sock"
        with ModelGateway(upstream, socket, stage="test", max_attempts=1, call_timeout=30, on_call=lambda call: None):
            command = [python, "-m", "include.rollout", inputs(tmp_path / "in", items), out, "--gateway", socket]
            subprocess.run(command, cwd=program, env={"PATH": "/usr/bin:/bin"}, check=True, timeout=120)

    lines = (out / "trajectories.jsonl").read_text().splitlines()
    rows = {row.item_id: row for row in map(Trajectory.model_validate_json, lines)}
    assert {name: row.answer for name, row in rows.items()} == {"i-0": "Q0", "i-1": "Q1", "i-2": "Q2", "broken": ""}
    assert rows["broken"].status is Status.SANDBOX_ERROR
    assert "context" in rows["broken"].error


def test_the_program_needs_nothing_of_the_host(python: Path, tmp_path: Path):
    image.stage_program(image.ROOT, tmp_path)
    code = """
import importlib.util, sys
import include.rollout.program
unwanted = ["airflow", "boto3", "docker", "pyarrow", "pandas", "include.store", "include.sandbox", "include.pipeline"]
print([name for name in unwanted if name in sys.modules or importlib.util.find_spec(name)])
"""
    done = subprocess.run([python, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
