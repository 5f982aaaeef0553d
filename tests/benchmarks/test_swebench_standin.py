"""The stand-in in the sample's repositories, with the real tools: its directives decide what it resolves."""

import asyncio
import gzip
import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.swebench.adapter import BENCHMARK, RepositoryTools
from benchmarks.swebench.make_sample import SAMPLE, Bug, in_splits
from benchmarks.swebench.standin import ON_REPOSITORIES, STANDIN, repair, symptoms, use_tool
from local.standin.agent import opening, usable
from local.standin.conversation import Call, Conversation, Turn
from local.standin.directives import recognise
from local.standin.stage_request import SeenTrajectory
from local.standin.subject import Active
from skillopt_airflow import benchmarks
from skillopt_airflow.core.types import Message
from skillopt_airflow.sandbox.tar_archive import extract

BUGS = [bug for _, bug in in_splits()]
GOOD = frozenset({"failing_test_first", "whole_function", "keep_signature"})
SEED = benchmarks.seed_skill("swebench").read_text()


def tree_of(bug: Bug, folder: Path) -> Path:
    packed = (SAMPLE / "instances" / bug.instance_id / "repo.tar.gz").read_bytes()
    extract([gzip.decompress(packed)], Path(folder), 1_000_000)
    return folder


def worked(bug: Bug, active: Active, folder: Path) -> list[str]:
    """Let the stand-in work with the benchmark's tools; returns their names, and leaves its work in the folder."""

    async def run_shell(command: str) -> str:
        return subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True, check=False).stdout

    tools = RepositoryTools(cast(Any, SimpleNamespace(repository=folder, run_shell=run_shell)))
    task = BENCHMARK.task({"problem_statement": bug.problem, "repo": bug.repository})
    assert STANDIN.speaks_of(task)
    results, called = list[str](), list[str]()
    while (reply := use_tool(active, task, results)).calls:
        (call,) = reply.calls
        called.append(call.name)
        results.append(asyncio.run(getattr(tools, call.name)(**json.loads(call.arguments))))
        assert len(called) < 9
    assert reply.text == "The issue is resolved."
    return called


@pytest.mark.parametrize("bug", BUGS[::5], ids=[bug.instance_id for bug in BUGS[::5]])
def test_it_works_with_the_tools_until_it_has_submitted(bug: Bug, tmp_path: Path):
    for active, wanted in ((GOOD, bug.right), (frozenset[str](), bug.mistake)):
        tree = tree_of(bug, tmp_path / str(len(active)))
        called = worked(bug, active, tree)
        assert called == [*(["shell"] if active else []), "view", "edit", "submit"]
        assert wanted in (tree / bug.file).read_text()


@pytest.mark.parametrize("bug", BUGS, ids=[bug.instance_id for bug in BUGS])
def test_each_bug_wants_one_directive(bug: Bug):
    wanted = {"run": "failing_test_first", "read": "whole_function", "signature": "keep_signature"}[bug.needs]
    assert repair(bug, frozenset({wanted}))[1] == bug.right
    assert repair(bug, GOOD - {wanted})[1] == bug.mistake


def test_the_seed_skill_asks_for_none_of_them_and_a_tempting_one_spoils():
    assert not recognise(SEED) & {rule.name for rule in ON_REPOSITORIES}
    bug = next(bug for bug in BUGS if bug.needs == "read")
    assert repair(bug, GOOD | {"fewest_lines"})[1] == bug.mistake


def test_what_went_wrong_points_to_the_directive():
    def seen(bug: Bug, feedback: str, *said: str) -> SeenTrajectory:
        task = BENCHMARK.task({"problem_statement": bug.problem, "repo": bug.repository})
        messages = (Message(role="user", content=task), *(Message(role="user", content=text) for text in said))
        return SeenTrajectory(item_id="x", feedback=feedback, messages=messages)

    failing = "unresolved: 0 of 1 tests of the issue pass. Still failing: a."
    glance, look, ran = 'view {"path": "a.py", "first": 3, "last": 8}', "sed -n 3,40p a.py", "=== tests ran"
    assert symptoms(seen(BUGS[0], failing, glance)) == {"whole_function": True, "failing_test_first": True}
    assert symptoms(seen(BUGS[0], failing, glance, ran)) == {"whole_function": True}
    assert symptoms(seen(BUGS[0], failing, look)) == {"failing_test_first": True}
    assert symptoms(seen(BUGS[0], failing, ran, look)) == {"fewest_lines": False}
    lost = failing + " 2 tests that passed before fail now: b, c."
    assert symptoms(seen(BUGS[0], lost)) == {"keep_signature": True}
    assert symptoms(seen(BUGS[0], "resolved: 1 of 1 tests of the issue pass.")) == {}


def test_through_an_agent_clis_shell_it_does_the_same(tmp_path: Path):
    bug = next(bug for bug in BUGS if bug.needs == "read")
    tree = tree_of(bug, tmp_path)
    task = BENCHMARK.task({"problem_statement": bug.problem, "repo": bug.repository})
    rules = "\n".join(f"- {rule.rules[0]}" for rule in ON_REPOSITORIES if rule.name in GOOD)
    skill = f"<skill>\n<name>x</name>\n<path>/x</path>\n---\nname: x\n---\n# Skill\n\n{rules}\n</skill>"
    from local.standin.acting import act

    turns = [Turn("user", skill), Turn("user", f"$x {task}")]
    for _ in range(9):
        talk = Conversation("m", "<skills_instructions>\n", tuple(turns), ("exec_command",))
        assert "shell" in usable(talk, opening(talk)[1])
        reply = act(talk)
        if not reply.calls:
            break
        command = json.loads(reply.calls[0].arguments)["cmd"]
        done = subprocess.run(["bash", "-c", command], cwd=tree, capture_output=True, text=True, check=False)
        turns += [Turn("assistant", calls=(Call("exec_command", command),)), Turn("tool", done.stdout + done.stderr)]
    assert reply.text == "The issue is resolved."
    assert bug.right in (tree / bug.file).read_text()
