"""docs/providers.md: its connections are created as they stand there, and lead where the page says."""

import json
import re
import shlex
from pathlib import Path

import pytest

from skillopt_airflow.core.errors import ModelConnectionError
from skillopt_airflow.models.connection import optimizer_model, target_upstream
from tests.models.conftest import PROVIDER_VARIABLES

PAGE = (Path(__file__).parents[2] / "docs" / "providers.md").read_text(encoding="utf-8")
LINES = [line for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
CONNECTIONS = dict(shlex.split(line)[1].split("=", 1) for line in LINES)
AZURE_V1 = "https://RESOURCE.openai.azure.com/openai/v1"
LEADS = {
    "FIRST": ("openai-chat", "http://vllm-1:8000/v1", "Qwen/Qwen3-8B"),
    "SECOND": ("openai-chat", "http://vllm-2:8000/v1", "Qwen/Qwen3-8B"),
    "OPENAI": ("openai", "https://api.openai.com/v1", "gpt-5-mini"),
    "AZURE_V1": ("openai-chat", AZURE_V1, "DEPLOYMENT"),
    "AZURE_DATED": ("openai-chat", "https://RESOURCE.openai.azure.com/openai", "DEPLOYMENT"),
    "AZURE_IDENTITY": ("openai-chat", AZURE_V1, "DEPLOYMENT"),
    "AZURE_USER_ASSIGNED": ("openai-chat", AZURE_V1, "DEPLOYMENT"),
    "AZURE_LOGIN": ("openai-chat", AZURE_V1, "DEPLOYMENT"),
    "AZURE_FOUNDRY": ("openai-chat", "https://RESOURCE.services.ai.azure.com/openai/v1", "DEPLOYMENT"),
    "ANTHROPIC": ("anthropic", "https://api.anthropic.com/v1", "claude-haiku-4-5"),
    "QWEN": ("openai-chat", "http://vllm:8000/v1", "Qwen/Qwen3-8B"),
    "MINIMAX_CHAT": ("openai-chat", "https://api.minimax.io/v1", "MiniMax-M2.7"),
    "MINIMAX": ("anthropic", "https://api.minimax.io/anthropic/v1", "MiniMax-M2.7"),
    "BEDROCK": ("openai-chat", "", "eu.anthropic.claude-haiku-4-5-20251001-v1:0"),
    "BEDROCK_KEY": ("openai-chat", "", "amazon.nova-lite-v1:0"),
    "BEDROCK_ROLE": ("openai-chat", "", "amazon.nova-lite-v1:0"),
    "OPENROUTER": ("openai-chat", "", "qwen/qwen3-8b"),
    "OWN_SERVER": ("openai-chat", "http://SERVER:PORT/v1", "NAME"),
}


@pytest.fixture(autouse=True)
def _connections(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in PROVIDER_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in CONNECTIONS.items():
        monkeypatch.setenv(name, value)


def test_every_connection_of_the_page_is_tried() -> None:
    assert {f"AIRFLOW_CONN_{name}" for name in LEADS} == set(CONNECTIONS)
    assert all(line.startswith("export ") for line in LINES)


@pytest.mark.parametrize("name", LEADS)
def test_a_connection_of_the_page(name: str) -> None:
    upstream = target_upstream(name.lower(), None)
    assert (upstream.dialect, upstream.base_url, upstream.model) == LEADS[name]
    fields = json.loads(CONNECTIONS[f"AIRFLOW_CONN_{name}"])
    extra = fields["extra"]
    written = {fields.get("password"), extra.get("api_key"), extra.get("aws_secret_access_key")} - {None}
    assert written <= upstream.secrets().keys()
    assert [fallback.conn_id for fallback in upstream.fallbacks] == extra.get("fallback_conn_ids", [])
    assert (upstream.identity.kind if upstream.identity else None) == extra.get("azure_auth")
    if name != "OWN_SERVER":
        assert upstream.model in optimizer_model(name.lower(), None).model_name


@pytest.mark.parametrize(
    ("harness", "names"),
    [
        ("codex", {"FIRST", "SECOND", "OPENAI", "QWEN", "MINIMAX_CHAT", "MINIMAX", "OWN_SERVER"}),
        ("claude_code", {"FIRST", "SECOND", "ANTHROPIC", "QWEN", "MINIMAX_CHAT", "MINIMAX", "OWN_SERVER"}),
    ],
)
def test_the_connections_that_an_agent_cli_may_have(harness: str, names: set[str]) -> None:
    if harness == "codex":
        names = names | {name for name in LEADS if name.startswith("AZURE")}

    def serves(name: str) -> bool:
        try:
            target_upstream(name.lower(), None, harness)  # type: ignore[arg-type]
        except ModelConnectionError as error:
            return f"model.harness {harness} posts /v1/" not in str(error)
        return True

    assert {name for name in LEADS if serves(name)} == names
