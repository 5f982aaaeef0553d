"""The program as the image gets it: copied to an empty folder, with only the sandbox's packages around it."""

import subprocess
import sys
import time
from pathlib import Path

import pytest
from pydantic import SecretStr
from uv import find_uv_bin

from local import image
from skillopt_airflow.core.values.types import Status, Trajectory
from skillopt_airflow.gateway.model_gateway import ModelGateway
from skillopt_airflow.gateway.upstream import Upstream
from skillopt_airflow.rollout.program import _row
from skillopt_airflow.sandbox.rollout_process import _environment
from tests.gateway.scripted_provider import Asked, Reply, ScriptedProvider, completion, failure
from tests.rollout.single_item import PLAIN, program_inputs, trajectories

pytestmark = pytest.mark.slow

COPYING = """
from skillopt_airflow import benchmarks
from skillopt_airflow.core.values.types import Message

SearchQA = type(benchmarks.load("searchqa"))

class Copying(SearchQA):
    runs_code = True

    def messages(self, public, skill):
        return (Message(role="system", content=skill), Message(role="user", content="Write a program."))

    async def follow_up(self, public, response, workspace):
        return await workspace.run_python(response)

BENCHMARK = Copying()
"""


@pytest.fixture(scope="session")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a virtual environment with the sandbox's packages."""
    folder = tmp_path_factory.mktemp("sandbox") / "venv"
    subprocess.run([find_uv_bin(), "venv", "--quiet", "--python", sys.executable, folder], check=True)
    interpreter = folder / "bin" / "python"
    requirements = image.ROOT / image.REQUIREMENTS
    install = [find_uv_bin(), "pip", "install", "--quiet", "--python", interpreter]
    subprocess.run([*install, "--require-hashes", "--requirements", requirements], check=True)
    return interpreter


@pytest.mark.nightly
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
            dialect="openai-chat", base_url=provider.base_url, model=PLAIN["model"], api_key=SecretStr("sk-outside")
        )
        socket = tmp_path / "model.sock"
        with ModelGateway(upstream, socket, stage="test", max_attempts=1, call_timeout=30, on_call=lambda call: None):
            folder = program_inputs(tmp_path / "in", items, concurrency=2, call_timeout=30)
            command = [python, "-m", "skillopt_airflow.rollout", folder, out, "--gateway", socket]
            subprocess.run(command, cwd=program, env={"PATH": "/usr/bin:/bin"}, check=True, timeout=120)

    rows = trajectories(out)
    assert {name: row.answer for name, row in rows.items()} == {"i-0": "Q0", "i-1": "Q1", "i-2": "Q2", "broken": ""}
    assert rows["broken"].status is Status.SANDBOX_ERROR
    assert "context" in rows["broken"].error


HALF = "Well \ud83d <answer>Q7 \ud83d</answer>"


BAD = {
    "Q1": (completion(HALF), Status.OK, "Q7 \ufffd"),
    "Q2": (completion("<answer>Q\0</answer>"), Status.OK, "Q\ufffd"),
    "Q3": (completion("\ud83d", "length"), Status.TRUNCATED, "\ufffd"),
    "Q4": (completion(f"<think>\udfff</think>{HALF}"), Status.OK, "Q7 \ufffd"),
    "Q5": (Reply(body=completion("x").body.replace(b'"x"', b'"\xed\xa0\xbd"')), Status.OK, "\ufffd"),
    "Q6": (failure(400, "no \ud83d"), Status.MODEL_ERROR, "no "),
}
"""Replies that can't be stored as they are, with their status and the answer or error."""


@pytest.mark.nightly
def test_replies_that_cannot_be_stored_as_they_are_cost_no_other_item(tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    items: list[dict[str, object]] = [
        {"id": f"Q{n}", "public": {"question": f"Q{n}?", "context": "[DOC] x"}} for n in range(30)
    ]
    folder = program_inputs(tmp_path / "in", items, concurrency=30, call_timeout=30)

    def answer(asked: Asked) -> Reply:
        question = asked.body["messages"][1]["content"].split("Question: ")[1].partition("?")[0]
        if question in BAD:
            return BAD[question][0]
        # The others are in flight when the bad ones end.
        time.sleep(1)
        return completion(f"<answer>{question}</answer>")

    with ScriptedProvider(answer) as provider:
        command = [sys.executable, "-m", "skillopt_airflow.rollout", folder, out]
        command += ["--gateway", provider.base_url.removesuffix("/v1")]
        subprocess.run(command, env=_environment(), check=True, timeout=120)

    rows = trajectories(out)
    assert len(rows) == 30
    for name, (_, status, text) in BAD.items():
        row = rows.pop(name)
        assert (name, row.status) == (name, status)
        assert text in (row.answer if status.scored else row.error)
    assert {name: row.answer for name, row in rows.items()} == {name: name for name in rows}


def test_a_row_that_cannot_be_written_is_an_error_of_its_item() -> None:
    broken = Trajectory.model_construct(item_id="a", status=Status.OK, answer="\ud83d")
    found = Trajectory.model_validate_json(_row(broken))
    assert (found.item_id, found.status) == ("a", Status.SANDBOX_ERROR)
    assert "surrogates" in found.error


@pytest.mark.nightly
def test_a_gateway_with_an_address_and_the_files_of_an_item(python: Path, tmp_path: Path):
    """A benchmark that runs code, as a project could have it, by a gateway in another container."""
    program, out = tmp_path / "program", tmp_path / "out"
    image.stage_program(image.ROOT, program)
    benchmark = program / "skillopt_airflow" / "project" / "benchmarks" / "copying"
    benchmark.mkdir()
    (benchmark / "adapter.py").write_text(COPYING)
    items = [{"id": f"i-{n}", "public": {}} for n in range(2)]
    folder = program_inputs(tmp_path / "in", items, benchmark="copying", call_timeout=30)
    (folder / "files" / "1").mkdir(parents=True)
    (folder / "files" / "1" / "data.txt").write_text("seven")
    out.mkdir()
    code = """
import openpyxl, os, pandas
with open(os.environ["INPUTS"] + "/data.txt") as file: text = file.read()
pandas.DataFrame({"a": [text]}).to_excel("made.xlsx")
print(openpyxl.load_workbook("made.xlsx").active["B2"].value.upper())
"""

    with ScriptedProvider(lambda asked: completion(code)) as provider:
        address = provider.base_url.removesuffix("/v1")
        command = [python, "-m", "skillopt_airflow.rollout", folder, out, "--gateway", address]
        subprocess.run(command, cwd=program, env={"PATH": "/usr/bin:/bin"}, check=True, timeout=120)

    rows = trajectories(out)
    assert {name: row.files for name, row in rows.items()} == {"i-0": (), "i-1": ("made.xlsx",)}
    assert "FileNotFoundError" in rows["i-0"].messages[-1].content
    assert rows["i-1"].messages[-1].content == "SEVEN\n\n[exit status 0]"
    assert (out / "files" / "1" / "made.xlsx").stat().st_size > 0
