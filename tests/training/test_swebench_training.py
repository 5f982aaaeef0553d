"""A training whose target repairs repositories: what it changes is judged by tests, in plain processes here."""

import asyncio
import gzip
import json
import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.swebench.adapter import RepositoryTools
from local.standin.conversation import Conversation, Turn
from local.standin.stand_in import of_all_benchmarks
from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.core.values.types import Item, Message, Split, Status, Trajectory
from skillopt_airflow.sandbox import judge_tests
from skillopt_airflow.sandbox.task_workload import Outcome
from skillopt_airflow.sandbox.untrusted_output import extract
from skillopt_airflow.tasks.repository_tests import PATCH_FILE, Canaries, RepositoryTestRun, RepositoryTests, RunEnd
from skillopt_airflow.training.rollouts.workload import ChunkWorkload
from tests.training.in_process import Training

pytestmark = [pytest.mark.slow, pytest.mark.nightly]


def git(folder: str, *arguments: str, given: str = "") -> str:
    command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
    return subprocess.run(command, cwd=folder, input=given, capture_output=True, text=True, check=True).stdout


def unpack(tree: bytes, folder: str) -> None:
    extract([gzip.decompress(tree)], Path(folder))
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "base")


class InRepositories(Training):
    """The stand-in works with the benchmark's own tools in a folder of the item's tree."""

    def _outcome(self, work: ChunkWorkload, item: Item) -> Outcome:
        self.rollouts[work.stage] += 1
        task = self.run.benchmark.task(item.public)
        said = [Message(role="system", content=work.skill), Message(role="user", content=task)]
        turns = [Turn("user", task)]
        with tempfile.TemporaryDirectory() as folder:
            unpack(work.image_files(item)["repo.tar.gz"], folder)

            async def run_shell(command: str) -> str:
                return subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True).stdout

            tools = RepositoryTools(cast(Any, SimpleNamespace(repository=folder, run_shell=run_shell)))
            names = tuple(tool.__name__ for tool in tools.all())
            while (reply := of_all_benchmarks().reply(Conversation("m", work.skill, tuple(turns), names))).calls:
                call = reply.calls[0]
                result = asyncio.run(getattr(tools, call.name)(**json.loads(call.arguments)))
                turns += [Turn("assistant", calls=(call,)), Turn("tool", result)]
                said += [
                    Message(role="assistant", content=f"{call.name} {call.arguments}"),
                    Message(role="user", content=result),
                ]
            git(folder, "add", "-A")
            change = git(folder, "diff", "--cached", "--no-renames", "HEAD")
        said.append(Message(role="assistant", content=reply.text))
        trajectory = Trajectory(
            item_id=item.id, status="ok", messages=tuple(said), answer=reply.text, files=(PATCH_FILE,), calls=1
        )
        return Outcome(trajectory, {PATCH_FILE: change.encode()})


def judged_here(
    limits: Any, base: str, labels: Any, contents: Callable[[Item], Mapping[str, bytes]], docker_url: None
) -> Callable[[Item, RepositoryTests], RepositoryTestRun]:
    def run(item: Item, wanted: RepositoryTests) -> RepositoryTestRun:
        canaries = Canaries.draw(wanted.runner, wanted.files, random.Random(0))
        with tempfile.TemporaryDirectory() as folder:
            unpack(contents(item)["repo.tar.gz"], folder)
            git(folder, "apply", "-", given=wanted.patch)
            git(folder, "apply", "-", given=wanted.test_patch)
            for path, content in canaries.contents.items():
                (Path(folder) / path).write_text(content)
            program = Path(str(judge_tests.__file__)).read_text().replace('WORK = "/work"', f"WORK = {folder!r}")
            files = [canaries.labels[0], *wanted.files, canaries.labels[1]]
            command = [sys.executable, "-c", program, wanted.runner, ".", *files]
            done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        return RepositoryTestRun(
            end=RunEnd.RAN,
            output=done.stdout,
            exit_status=done.returncode,
            canaries=canaries,
        )

    return run


@pytest.fixture(scope="module")
def training() -> Any:
    training = InRepositories.of(
        "swebench",
        train__num_epochs=1,
        train__steps_per_epoch=2,
        train__batch_size=5,
        evaluation__val_limit=None,
        evaluation__test_limit=None,
        evaluation__eval_test=False,
        optimizer__use_slow_update=False,
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("skillopt_airflow.training.rollouts.workload.engine_test_runner", judged_here)
        training()
    return training


def test_the_skill_gets_better_at_resolving_issues(training: Training) -> None:
    before = training.run.state(training.run.timeline[0]).current.evaluation.mean("hard")
    after = training.state.best.evaluation.mean("hard")
    assert after > before
    assert "accept_new_best" in training.actions()


def test_every_rollout_is_judged_by_tests(training: Training) -> None:
    stored = training.run.stored(Split.VAL, training.run.skill(0), 0, training.run.items(Split.VAL))
    assert len(stored) == 6
    for rollout in stored.values():
        assert rollout.score is not None
        assert "tests of the issue pass" in rollout.score.feedback
        assert rollout.trajectory.answer.startswith("diff --git ")


def test_no_patch_and_no_hidden_test_reaches_the_optimizer(training: Training) -> None:
    shown = "".join(prompt for _, prompt in training.models.prompts)
    for item in training.run.items(Split.TRAIN):
        added = [line[1:].strip() for line in str(item.reference["test_patch"]).splitlines() if line.startswith("+  ")]
        assert not [line for line in added if "assert" in line and line in shown]


def test_an_engine_that_was_away_judges_later_without_another_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(*_: Any) -> Callable[[Item, RepositoryTests], RepositoryTestRun]:
        def run(item: Item, wanted: RepositoryTests) -> RepositoryTestRun:
            raise SandboxError("the engine is away")

        return run

    trained = InRepositories.of("swebench", evaluation__val_limit=2, evaluation__test_limit=None)
    monkeypatch.setattr("skillopt_airflow.training.rollouts.workload.engine_test_runner", away)
    [chunk, *_] = trained.prepare()
    work = ChunkWorkload(trained.run, chunk, "in-process")
    work.record([trained._outcome(work, item) for item in work.items], [])
    assert {(one.status, one.hard, one.error) for one in work.ended()} == {
        (Status.JUDGE_ERROR, None, "the engine is away")
    }
    monkeypatch.setattr("skillopt_airflow.training.rollouts.workload.engine_test_runner", judged_here)
    again = ChunkWorkload(trained.run, chunk, "in-process")
    again.judge_again()
    assert not again.items
    assert {one.status for one in again.ended()} == {Status.OK}
    stored = trained.run.stored(Split.VAL, trained.run.skill(0), 0, again.assigned)
    assert all(one.trajectory.answer.startswith("diff --git ") and one.score for one in stored.values())
