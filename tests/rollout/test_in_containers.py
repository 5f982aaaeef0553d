"""Harnesses in hardened containers without network, as the operator runs them."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import docker
import pytest
from pydantic import SecretStr

from local import image
from skillopt_airflow import benchmarks
from skillopt_airflow.benchmarks import LIST_VARIABLE
from skillopt_airflow.core.config.harnesses import HARNESSES, HarnessName
from skillopt_airflow.core.config.resource_groups import SandboxGroup
from skillopt_airflow.core.values.types import Item, Status
from skillopt_airflow.gateway.upstream import Upstream
from skillopt_airflow.rollout.settings import RolloutSettings
from skillopt_airflow.tasks.declared_task import declared_benchmark
from skillopt_airflow.tasks.task_group import TaskGroup
from tests.gateway.scripted_provider import Asked, Reply, ScriptedProvider, completion
from tests.rollout.wire import calls, results
from tests.sandbox.fake_workload import FakeOperator, FakeWorkload

MODEL = "stand-in-target"
SAMPLE = json.loads((image.ROOT / "benchmarks/searchqa/sample/train/items.json").read_text(encoding="utf-8"))
QUESTIONS = [benchmarks.load("searchqa").item(record) for record in SAMPLE[:3]]
BOMB = """
import os
while True:
    try: os.fork()
    except OSError: pass
"""
TABLE = """
import os, pandas
pandas.DataFrame({"a": [7]}).to_excel(os.environ["OUTPUTS"] + "/output.xlsx", index=False)
"""


def workload(
    harness: HarnessName,
    dialect: Any,
    base_url: str,
    items: list[Item],
    skill: str = "Answer in few words.",
    **changed: Any,
) -> FakeWorkload:
    plain: dict[str, Any] = {"benchmark": "searchqa", "model": MODEL, "max_tokens": 512, "concurrency": 2}
    plain |= {"harness": harness, "dialect": dialect, "call_timeout": 60, "max_attempts": 1, "max_turns": 4}
    settings = RolloutSettings(**plain | changed)
    return FakeWorkload(
        items=items,
        upstream=Upstream(dialect=dialect, base_url=base_url, model=MODEL, api_key=SecretStr("sk-never-inside")),
        settings=settings,
        limits=SandboxGroup(),
        labels={"run": "in-containers", "step": "1", "chunk": f"{harness}-{dialect}-{settings.benchmark}"},
        skill=skill,
        image=HARNESSES[harness].image,
        one_item_each=HARNESSES[harness].is_cli or settings.benchmark != "searchqa",
    )


OTHERS = ("openai", "anthropic")


@pytest.mark.engine
@pytest.mark.parametrize("dialect", ["openai-chat", *(pytest.param(one, marks=pytest.mark.nightly) for one in OTHERS)])
def test_the_stand_in_searches(dialect: str, docker_host: str, standin_url: str):
    fake = workload("tools", dialect, standin_url, QUESTIONS)
    FakeOperator(fake=fake, docker_url=docker_host).execute({})

    assert {row.item_id: row.status for row in fake.trajectories} == {item.id: Status.OK for item in QUESTIONS}
    assert {(row.calls, row.messages[3].role) for row in fake.trajectories} == {(2, "tool")}


@pytest.mark.engine
def test_a_task_that_no_image_knows_travels_with_the_settings(docker_host: str):
    def answer(asked: Asked) -> Reply:
        told = results(asked)
        if len(told) < 2:
            return calls("openai-chat", *(("read_file", {"name": told[0]}) if told else ("list_files", {})))
        return completion(f"I read: {told[1]}\n[[{told[1].split()[-1]}]]")

    task = TaskGroup.model_validate(
        {
            "prompt": "{{ question }}",
            "reference": "answer",
            "answer": {"from": "regex", "pattern": r"\[\[(.*)\]\]"},
            "score": {"by": "exact"},
            "files": ["path"],
        }
    )
    items = [declared_benchmark(task).item({"question": "Who rents?", "answer": "Weber", "path": "a/contract.txt"})]
    with ScriptedProvider(answer) as provider:
        changed = {"benchmark": "contracts", "task": task.model_dump(mode="json")}
        fake = workload("tools", "openai-chat", provider.base_url, items, **changed)
        fake.public_files = {"contract.txt": b"The tenant is Ms Weber"}
        FakeOperator(fake=fake, docker_url=docker_host).execute({})

    (row,) = fake.trajectories
    assert (row.status, row.error, row.answer) == (Status.OK, "", "Weber")
    assert row.messages[1].content == "Who rents?"


@pytest.mark.nightly
@pytest.mark.engine
def test_a_benchmark_outside_the_repository_runs_and_a_broken_one_beside_it_stays_out_of_its_way(
    docker_host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    name = "skillopt-sandbox-listed:test"
    shutil.copytree(image.ROOT / "benchmarks" / "_template", tmp_path / "riddles")
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "adapter.py").write_text("BENCHMARK = (")
    monkeypatch.setenv(LIST_VARIABLE, f"{tmp_path / 'riddles'},{tmp_path / 'broken'}")
    monkeypatch.setattr(image, "RECIPES", {"sandbox": replace(image.RECIPES["sandbox"], image=name)})
    image.ensure(image.ROOT / ".local", docker_host, print)
    item = Item(id="i", public={"letters": "abt"}, reference={"words": ["bat", "tab"]})
    try:
        with ScriptedProvider(lambda asked: completion("<answer>bat</answer>")) as provider:
            fake = workload("chat", "openai-chat", provider.base_url, [item], benchmark="riddles", max_turns=1)
            fake.image = name
            FakeOperator(fake=fake, docker_url=docker_host).execute({})
    finally:
        client = docker.DockerClient(base_url=docker_host)
        client.images.remove(name)
        client.close()

    (row,) = fake.trajectories
    assert (row.status, row.answer, row.error) == (Status.OK, "bat", "")
    assert benchmarks.load("riddles").score(item, row).hard == 1.0


@pytest.mark.nightly
@pytest.mark.engine
def test_after_a_fork_bomb_code_runs_as_before(docker_host: str):
    def answer(asked: Asked) -> Reply:
        return completion(f"```python\n{BOMB if asked.number == 1 else TABLE}\n```")

    item = Item(id="i", public={"instruction": "x", "instruction_type": "x", "answer_position": "A1"}, reference={})
    with ScriptedProvider(answer) as provider:
        changed = {"benchmark": "spreadsheetbench", "max_turns": 2, "code_timeout": 15.0}
        fake = workload("chat", "openai-chat", provider.base_url, [item], **changed)
        FakeOperator(fake=fake, docker_url=docker_host).execute({})

    (row,) = fake.trajectories
    assert (row.status, row.error, row.files) == (Status.OK, "", ("output.xlsx",))
    assert "[killed: it was not done after 15 s]" in row.messages[3].content
    assert row.calls == 2
    assert fake.left["i"]["output.xlsx"].startswith(b"PK")
