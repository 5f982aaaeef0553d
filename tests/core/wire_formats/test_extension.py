from pathlib import Path

import pytest

from tests.core.extended import output_of

# Chat completions with a mandatory header and another field for token counts, as a server might have them.
SOURCE = """
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
SCRIPT = """
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
    said = output_of(SCRIPT, tmp_path, "core/wire_formats/ollama.py", SOURCE, registry, lines)
    refused, told = said.strip().splitlines()[-2:]
    assert refused.startswith("model.reasoning_effort = 'on': ")
    assert told == "ollama ok Eiffel 5 4"
