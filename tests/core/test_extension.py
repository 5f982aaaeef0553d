"""A copy of the package with one file and one line more, as CONTRIBUTING describes an extension."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROJECT = Path(__file__).parents[2]


def output_of(script: str, folder: Path, module: str, source: str, registry: str, lines: dict[str, str]) -> str:
    """Run a script against a copy in an empty folder; `lines` are added to the registry, each after its key."""
    package = folder / "skillopt_airflow"
    shutil.copytree(PROJECT / "include" / "skillopt_airflow", package, ignore=shutil.ignore_patterns("__pycache__"))
    (package / "project").symlink_to(PROJECT)
    (package / module).write_text(source, encoding="utf-8")
    text = (package / registry).read_text(encoding="utf-8")
    for before, line in lines.items():
        assert text.count(before) == 1
        text = text.replace(before, before + line)
    (package / registry).write_text(text, encoding="utf-8")
    env = os.environ | {"PYTHONPATH": f"{folder}:{PROJECT}"}
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


HARNESS = """
from skillopt_airflow.core.values.types import Status, Trajectory

class Echo:
    def __init__(self, settings, benchmark, base_url):
        self.told = f"{settings.harness} in {settings.dialect} by {base_url}"

    async def run(self, item, skill, workspace):
        return Trajectory(item_id=item.id, status=Status.OK, answer=self.told)

    async def aclose(self):
        pass
"""
ROLLED_OUT = """
import asyncio, json
from pathlib import Path
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.gateway.upstream import Upstream
from skillopt_airflow.models.providers import ModelConnection, check_sampling, http_upstream, for_harness
from skillopt_airflow.rollout.program import run
from skillopt_airflow.rollout.settings import RolloutSettings

config = TrainConfig.from_layers({"model": {"harness": "echo", "temperature": 0.5}})
connected = ModelConnection(conn_id="c", conn_type="pydanticai", host="http://own/v1", password="", extra={},
                      provider="openai-chat", model="m")
upstream = for_harness("echo", connected, http_upstream(connected))
try:
    check_sampling(upstream, config.model)
except ConfigError as error:
    print(error)
settings = RolloutSettings(benchmark="searchqa", harness="echo", dialect=upstream.dialect, model="m", max_tokens=9,
                           concurrency=1, call_timeout=9, max_attempts=1)
for folder in ("in", "out"): Path(folder).mkdir()
Path("in/settings.json").write_text(settings.model_dump_json())
Path("in/skill.md").write_text("skill")
Path("in/items.jsonl").write_text(json.dumps({"id": "i", "public": {}}))
asyncio.run(run(Path("in"), Path("out"), "http://gateway"))
print(config.image, json.loads(Path("out/trajectories.jsonl").read_text())["answer"], sep="; ")
"""


@pytest.mark.nightly
def test_a_harness_is_one_file_and_one_line(tmp_path: Path) -> None:
    line = """    "echo": Harness(
        "skillopt_airflow.rollout.harnesses.echo:Echo", image="echo:latest", wire_format="anthropic", is_cli=True
    ),
"""
    lines = {"HARNESSES: Mapping[str, Harness] = {\n": line}
    refused, told = output_of(
        ROLLED_OUT, tmp_path, "rollout/harnesses/echo.py", HARNESS, "core/config/harnesses.py", lines
    ).splitlines()[-2:]
    assert refused.startswith("model.temperature = 0.5: the CLI of harness echo has no option for it")
    assert told == "echo:latest; echo in anthropic by http://gateway"


# Chat completions with a mandatory header and another field for token counts, as a server might have them.
WIRE_FORMAT = """
from skillopt_airflow.core.wire_formats.openai_chat import OpenAIChat

class Ollama(OpenAIChat):
    name = "ollama"
    address = "https://ollama.invalid/v1"
    key_header = "x-own-key"
    headers = {"x-own-version": "7"}
    completion_tokens = ("answered_tokens",)

    def sampling(self, reasoning_effort=None, thinking=None, thinking_budget=None):
        return {}
"""
THROUGH_A_GATEWAY = """
import asyncio, json
from contextlib import aclosing
from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.resource_groups import ModelGroup
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.gateway.model_gateway import ModelGateway
from skillopt_airflow.models.connection import target_dialect, target_upstream
from skillopt_airflow.models.providers import check_sampling
from skillopt_airflow.rollout.program import runner
from skillopt_airflow.rollout.settings import PublicItem, RolloutSettings
from tests.gateway.scripted_provider import Reply, ScriptedProvider, completion
import os, socket

def answer(asked):
    assert asked.headers["x-own-key"] == "secret" and asked.headers["x-own-version"] == "7", asked.headers
    said = json.loads(completion("<answer>Eiffel</answer>").body)
    usage = said["usage"] | {"prompt_tokens": 5, "answered_tokens": 4, "total_tokens": 9}
    return Reply(body=json.dumps(said | {"usage": usage}).encode())

async def rolled_out(port, upstream):
    settings = RolloutSettings(benchmark="searchqa", dialect=upstream.dialect, model=upstream.model, max_tokens=9,
                               concurrency=1, call_timeout=9, max_attempts=1)
    async with aclosing(runner(settings, benchmarks.load("searchqa"), f"http://127.0.0.1:{port}")) as running:
        return await running.run(PublicItem(id="i", public={"question": "q", "context": "c"}), "skill", None)

calls = []
with ScriptedProvider(answer) as provider:
    os.environ["AIRFLOW_CONN_OWN"] = json.dumps(
        {"conn_type": "pydanticai", "host": provider.base_url, "password": "secret", "extra": {"model": "ollama:m"}})
    upstream = target_upstream("own", None)
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = free.getsockname()
    with ModelGateway(upstream, place, stage="s", on_call=calls.append, max_attempts=1, call_timeout=9):
        row = asyncio.run(rolled_out(place[1], upstream))
try:
    check_sampling(upstream, ModelGroup(reasoning_effort="on"))
except ConfigError as error:
    print(error)
print(target_dialect("own", None), row.status, row.answer, calls[0].prompt_tokens, calls[0].completion_tokens)
"""


@pytest.mark.nightly
def test_a_wire_format_is_one_file_and_one_line(tmp_path: Path) -> None:
    registry = "core/wire_formats/__init__.py"
    lines = {
        "import AnthropicMessages\n": "from skillopt_airflow.core.wire_formats.ollama import Ollama\n",
        '    "anthropic": AnthropicMessages(),\n': '    "ollama": Ollama(),\n',
    }
    said = output_of(THROUGH_A_GATEWAY, tmp_path, "core/wire_formats/ollama.py", WIRE_FORMAT, registry, lines)
    refused, told = said.strip().splitlines()[-2:]
    assert refused.startswith("model.reasoning_effort = 'on': ")
    assert told == "ollama ok Eiffel 5 4"


POLICY = """
from skillopt_airflow.core.gate.policies import Action, Policy, Verdict

def unanimous(evidence, rules):
    return Verdict(action=Action.REJECT if evidence.table.losses else Action.ACCEPT, reason="own")

UNANIMOUS = Policy(judge=unanimous, fewest_items=lambda rules: 3)
"""
GATED = """
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.gate.decision import decide
from skillopt_airflow.core.gate.item_scores import Evaluation, ItemScore
from skillopt_airflow.core.gate.policies import policy_of

config = TrainConfig.from_layers({name: {"gate_policy": "unanimous"} for name in ("evaluation", "publishing")})
rules = config.evaluation

def measured(*scores):
    return Evaluation(scores={str(at): ItemScore(hard=score, soft=score) for at, score in enumerate(scores)})

for candidate in ((1, 1, 0), (1, 0, 1)):
    decision = decide(measured(*candidate), measured(0, 1, 0), measured(0, 1, 0), rules)
    print(decision.action, decision.policy, decision.reason)
print(policy_of(config.publishing.gate_policy).fewest_items(rules))
"""


@pytest.mark.nightly
def test_a_gate_policy_is_one_file_and_one_line(tmp_path: Path) -> None:
    line = '    "unanimous": "skillopt_airflow.core.gate.unanimous:UNANIMOUS",\n'
    lines = {"GATE_POLICIES: Mapping[str, str] = {\n": line}
    said = output_of(GATED, tmp_path, "core/gate/unanimous.py", POLICY, "core/config/training_groups.py", lines)
    accepted, rejected, fewest = said.splitlines()
    assert accepted.startswith("accept_new_best unanimous ")
    assert accepted.endswith("; own")
    assert (rejected, fewest) == ("reject unanimous own", "3")


SCORING_RULE = """
from typing import Literal
from skillopt_airflow.tasks.scoring.scoring_rule import Scoring

class Prefix(Scoring):
    by: Literal["prefix"] = "prefix"
    characters: int = 3

    def compare(self, answer, expected):
        equal = answer[: self.characters] == expected[: self.characters]
        return float(equal), float(equal)
"""
SCORED = """
from skillopt_airflow.tasks.task_group import KEYS, TaskGroup

task = TaskGroup.model_validate(
    {"prompt": "{{ q }}", "reference": "a", "score": {"by": "prefix", "characters": 2}})
print("task.score.prefix.characters" in KEYS, *(task.score.score(said, "Paris", {}).hard for said in ("Pau", "Lyon")))
"""


@pytest.mark.nightly
def test_a_scoring_rule_is_one_file_and_one_line(tmp_path: Path) -> None:
    lines = {
        "import NumberMatch\n": "from skillopt_airflow.tasks.scoring.prefix import Prefix\n",
        '    "exact": Exact,\n': '    "prefix": Prefix,\n',
    }
    said = output_of(SCORED, tmp_path, "tasks/scoring/prefix.py", SCORING_RULE, "tasks/task_group.py", lines)
    assert said.split() == ["True", "1.0", "0.0"]
