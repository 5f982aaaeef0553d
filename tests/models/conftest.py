import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.gateway.conftest import Serve, provider

__all__ = ["PROVIDER_VARIABLES", "Connect", "Serve", "connect", "provider"]

Connect = Callable[..., str]

PROVIDER_VARIABLES = (
    "OPENAI_API_KEY",
    "OPENAI_BASE_URL",
    "OPENAI_API_VERSION",
    "ANTHROPIC_API_KEY",
    "AZURE_OPENAI_API_KEY",
    "AZURE_OPENAI_ENDPOINT",
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_BEARER_TOKEN_BEDROCK",
    "AWS_DEFAULT_REGION",
)


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Connect:
    """Defines a connection, by default `model_test`, and returns its id."""
    for name in PROVIDER_VARIABLES:
        monkeypatch.delenv(name, raising=False)

    def define(conn_id: str = "model_test", **fields: Any) -> str:
        defaults = {"conn_type": "pydanticai", "extra": {"model": "openai-chat:m"}}
        monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(defaults | fields))
        return conn_id

    return define
