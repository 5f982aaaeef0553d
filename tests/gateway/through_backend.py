"""A sandbox's client in front of a backend: what the gateway does with a call, without its limits and tries."""

import asyncio
from typing import cast

import httpx2
from openai import AsyncOpenAI
from pydantic_ai.direct import model_request
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, SystemPromptPart, UserPromptPart
from pydantic_ai.models import Model
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

from skillopt_airflow.core.config.sampling import sampling_settings
from skillopt_airflow.gateway.backends import Backend
from skillopt_airflow.gateway.retries import open_backend
from skillopt_airflow.gateway.upstream import Upstream

QUESTION: list[ModelMessage] = [
    ModelRequest(parts=[SystemPromptPart("the skill"), UserPromptPart("The capital of France?")])
]


class _Gateway(httpx2.AsyncBaseTransport):
    def __init__(self, backend: Backend) -> None:
        self._backend = backend

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        answer = await self._backend.send(await request.aread(), dict(request.headers))
        content = await answer.aread()
        return httpx2.Response(answer.status_code, headers={"content-type": "application/json"}, content=content)


def client_model(upstream: Upstream, backend: Backend) -> Model:
    """The model as a harness has it, with a key that must not leave the sandbox."""
    client = httpx2.AsyncClient(transport=_Gateway(backend))
    if upstream.dialect == "anthropic":
        provider = AnthropicProvider(api_key="sandbox", base_url="http://sandbox", http_client=client)
        return AnthropicModel(upstream.model, provider=provider)
    openai = AsyncOpenAI(api_key="sandbox", base_url="http://sandbox/v1", http_client=client, max_retries=0)
    if upstream.dialect == "openai":
        return OpenAIResponsesModel(upstream.model, provider=OpenAIProvider(openai_client=openai))
    return OpenAIChatModel(upstream.model, provider=OpenAIProvider(openai_client=openai))


def ask(
    upstream: Upstream,
    **sampling: object,
) -> ModelResponse:
    """One call of a rollout, with the settings that its knobs make."""

    async def call() -> ModelResponse:
        backend = open_backend(upstream, timeout=5)
        settings = sampling_settings(upstream.dialect, **({"max_tokens": 2048} | sampling))  # type: ignore[arg-type]
        try:
            async with client_model(upstream, backend) as model:
                return await model_request(model, QUESTION, model_settings=cast("ModelSettings", settings))
        finally:
            await backend.aclose()

    return asyncio.run(call())
