"""What all agent CLIs have in common, with small programs in the place of one."""

import asyncio
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from benchmarks.searchqa.adapter import BENCHMARK, SearchQA
from skillopt_airflow.core.values.skill import skill_name
from skillopt_airflow.core.values.types import JsonObject, Status, Trajectory
from skillopt_airflow.rollout.corpus_folder import NO_CORPUS, CorpusFolder
from skillopt_airflow.rollout.harnesses.cli import (
    MAX_FINAL_CHARS,
    MAX_MESSAGE_CHARS,
    MAX_MESSAGES,
    CLIHarness,
    Trace,
    events,
    install_skill,
)
from skillopt_airflow.rollout.settings import PublicItem, RolloutSettings
from skillopt_airflow.rollout.workspace import ItemFolders
from skillopt_airflow.tasks.protocols import Benchmark, Workspace
from tests.rollout.single_item import PLAIN
from tests.rollout.test_workspace import survives

ITEM = PublicItem(id="i-1", public={"question": "Which tower?", "context": "[DOC] Eiffel"})


class Program(CLIHarness):
    """Runs Python code, whose lines of output are texts of the model, an object with `error`, or the word done."""

    code = ""

    def prepare(self, home: Path, skill: str) -> None:
        install_skill(home / "skills", self.settings.benchmark, skill)

    def command(self, pictures: Sequence[str]) -> Sequence[str]:
        return [sys.executable, "-c", self.code]

    def prompt(self, task: str, pictures: Sequence[str]) -> str:
        return task

    def variables(self) -> Mapping[str, str]:
        return {"OWN": "1"}

    def read(self, lines: Iterable[bytes]) -> Trace:
        trace = Trace()
        for event in events(lines):
            if "say" in event:
                trace.calls += 1
                trace.add_text(event["say"])
            trace.finished = trace.finished or "done" in event
            trace.end("refusal" if "refused" in event else None)
            if "error" in event:
                trace.fail(event["error"], event.get("status"))
        return trace


class Coding(SearchQA):
    """A benchmark whose items are worked on by code."""

    runs_code = True

    def task(self, public: JsonObject) -> str:
        return f"Answer {public['question']} in a file."

    def tools(self, public: JsonObject, workspace: Workspace) -> Sequence[Any]:
        return ()


def run(
    code: str, outputs: Path, timeout: float = 30.0, benchmark: Benchmark = BENCHMARK, corpus: CorpusFolder = NO_CORPUS
) -> Trajectory:
    settings = RolloutSettings(**PLAIN | {"dialect": "openai", "item_timeout": timeout})
    harness = Program(settings, benchmark, "http://x")
    harness.code = code

    async def main() -> Trajectory:
        async with aclosing(harness):
            return await harness.run(ITEM, "Be short.", ItemFolders(Path("/nowhere"), outputs, 20.0, corpus=corpus))

    return asyncio.run(main())


def test_the_last_text_is_answered_with(tmp_path: Path):
    said = (
        'import json; print(json.dumps({"say": "a"})); print("noise"); print(json.dumps({"say": "<answer>b</answer>"}))'
    )
    trajectory = run(f"{said}; print('{{\"done\": 1}}')", tmp_path)

    assert (trajectory.status, trajectory.error, trajectory.answer) == (Status.OK, "", "b")
    assert [message.role for message in trajectory.messages] == ["system", "user", "assistant", "assistant"]
    assert trajectory.messages[0].content == "Be short."
    assert trajectory.messages[1].content == BENCHMARK.messages(ITEM.public, "")[1].content
    assert trajectory.calls == 2


def test_a_cli_is_told_of_its_folders_and_can_read_the_corpus(tmp_path: Path):
    folder = tmp_path / "corpus"
    folder.mkdir()
    (folder / "a.txt").write_text("alpha")
    code = """
import json, os, pathlib
print(json.dumps({"say": pathlib.Path(os.environ["CORPUS"], "a.txt").read_text(), "done": 1}))
"""
    trajectory = run(code, tmp_path, corpus=CorpusFolder(folder))
    assert trajectory.answer == "alpha"
    task = trajectory.messages[1].content
    assert task.startswith(BENCHMARK.task(ITEM.public))
    assert f"{folder} ($CORPUS)" in task.removeprefix(BENCHMARK.task(ITEM.public))
    coded = run("print()", tmp_path, benchmark=Coding()).messages[1].content
    assert coded.startswith("Answer Which tower? in a file.")
    assert "/nowhere ($INPUTS)" in coded
    assert f"{tmp_path} ($OUTPUTS)" in coded


def test_the_cli_works_in_the_outputs_with_a_home_of_its_own_and_little_else(tmp_path: Path, monkeypatch: Any):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-host")
    code = """
import json, os, pathlib
home = pathlib.Path(os.environ["HOME"])
skill = (home / "skills/searchqa/SKILL.md").read_text()
print(json.dumps({"say": json.dumps([os.getcwd(), sorted(os.environ), str(home), skill])}))
print('{"done": 1}')
pathlib.Path("made.txt").write_text("x")
"""
    cwd, names, home, skill = json.loads(run(code, tmp_path).messages[-1].content)

    assert cwd == str(tmp_path)
    assert set(names) <= {"PATH", "PYTHONPATH", "HOME", "INPUTS", "OUTPUTS", "LANG", "OWN", "LC_CTYPE"}
    assert skill.startswith("---\nname: searchqa\ndescription: ")
    assert skill.endswith("\n---\n\nBe short.")
    assert not Path(home).exists()
    assert [path.name for path in tmp_path.iterdir()] == ["made.txt"]


@pytest.mark.parametrize(
    ("code", "status", "words"),
    [
        ('print(\'{"error": "budget.max_usd is spent, so", "status": 402}\')', Status.BUDGET, "max_usd"),
        ('print(\'{"error": "too slow", "status": 504}\')', Status.TIMEOUT, "too slow"),
        ('print(\'{"error": "broken", "status": 500}\')', Status.MODEL_ERROR, "broken"),
        ('print(\'{"say": "I will not", "refused": 1, "done": 1}\')', Status.REFUSED, "I will not"),
        ('import sys; sys.exit("no such option")', Status.MODEL_ERROR, "exit status 1 and no result: no such option"),
        ("print('{\"done\": 1}')", Status.MODEL_ERROR, "exit status 0 and no result"),
        ('print(\'{"say": "x"}\\n{"done": 1}\'); import os; os.abort()', Status.MODEL_ERROR, "exit status -6"),
    ],
)
def test_what_goes_wrong_becomes_the_status(code: str, status: Status, words: str, tmp_path: Path):
    trajectory = run(code, tmp_path)

    assert trajectory.status is status
    assert words in trajectory.error
    assert trajectory.answer == ""


@pytest.mark.nightly
def test_a_cli_that_hangs_ends_with_all_that_it_started(tmp_path: Path):
    code = """
import subprocess, sys, time, pathlib
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
pathlib.Path("pid").write_text(str(child.pid))
print('{"say": "wait"}', flush=True)
time.sleep(600)
"""
    trajectory = run(code, tmp_path, timeout=3.5)

    assert trajectory.status is Status.TIMEOUT
    assert "sandbox.timeout" in trajectory.error
    assert trajectory.messages[-1].content == "wait"
    assert not survives(int((tmp_path / "pid").read_text()))


def test_text_that_cannot_be_stored_is_replaced_in_a_trace() -> None:
    trace = Trace()
    trace.add_text("a\ud83d")
    trace.add("tool", "b\0")
    assert (trace.final, [message.content for message in trace.messages]) == ("a\ufffd", ["a\ufffd", "b\ufffd"])


def test_a_long_trace_is_cut(tmp_path: Path):
    code = """
import json
for number in range(300): print(json.dumps({"say": str(number) * 50000}))
print('{"done": 1}')
"""
    trajectory = run(code, tmp_path)

    assert trajectory.status is Status.OK
    assert len(trajectory.messages) == MAX_MESSAGES + 2
    assert max(len(message.content) for message in trajectory.messages) <= MAX_MESSAGE_CHARS
    assert trajectory.answer == ("299" * 50000)[-MAX_FINAL_CHARS:]
    assert trajectory.messages[-1].content.endswith("299")


@pytest.mark.parametrize(("benchmark", "name"), [("searchqa", "searchqa"), ("_my_Bench2", "my-bench2")])
def test_a_skill_has_a_name_that_clis_take(benchmark: str, name: str, tmp_path: Path):
    install_skill(tmp_path, benchmark, 'a "text"\n---\n')
    assert skill_name(benchmark) == name
    assert (tmp_path / name / "SKILL.md").read_text().endswith('---\n\na "text"\n---\n')
