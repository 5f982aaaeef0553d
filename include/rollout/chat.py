"""The chat harness: one request an item, the skill as system message."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from openai import AsyncOpenAI
from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import AgentRunError, ModelHTTPError, ModelTimeoutError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    UserPromptPart,
)
from pydantic_ai.models import Model
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

from include.core.ports import Benchmark, Workspace
from include.core.types import Message, Status, Trajectory
from include.rollout.settings import PublicItem, RolloutSettings

MAX_ERROR_CHARS = 500
TIMEOUT_STATUSES = (408, 504)


@dataclass(frozen=True)
class Reply:
    """What came back for one request; `error` is empty exactly if the status is ok."""

    status: Status
    error: str = ""
    text: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0


class ChatHarness:
    """Opens a conversation as the benchmark says, and takes the first reply as the target's answer."""

    def __init__(self, settings: RolloutSettings, benchmark: Benchmark, base_url: str) -> None:
        self._benchmark = benchmark
        # The gateway adds the key and owns the retries.
        self._client = AsyncOpenAI(base_url=f"{base_url}/v1", api_key="none", max_retries=0, timeout=settings.patience)
        self._model = _model(settings, OpenAIProvider(openai_client=self._client))
        self._settings = ModelSettings(max_tokens=settings.max_tokens, timeout=settings.patience)
        if settings.temperature is not None:
            self._settings["temperature"] = settings.temperature

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self._client.close()

    async def run(self, item: PublicItem, skill: str, workspace: Workspace) -> Trajectory:
        """One item's trajectory; what the provider does wrong becomes its status."""
        started, clock = time.time(), time.monotonic()
        messages = list(self._benchmark.messages(item.public, skill))
        reply = await self._ask(messages)
        if reply.text:
            messages.append(Message(role="assistant", content=reply.text))
        return Trajectory(
            item_id=item.id,
            status=reply.status,
            error=reply.error,
            messages=tuple(messages),
            answer=self._benchmark.answer(reply.text) if reply.status is Status.OK else "",
            calls=1,
            prompt_tokens=reply.prompt_tokens,
            completion_tokens=reply.completion_tokens,
            started=started,
            seconds=time.monotonic() - clock,
        )

    async def _ask(self, messages: Sequence[Message]) -> Reply:
        try:
            response = await model_request(self._model, _conversation(messages), model_settings=self._settings)
        except AgentRunError as error:
            return Reply(_status_of(error), _short(str(error)))
        text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
        status, error_text = Status.OK, ""
        if response.finish_reason == "content_filter":
            status, error_text = Status.REFUSED, _refusal(response)
        elif response.finish_reason == "error":
            status, error_text = Status.MODEL_ERROR, "the provider broke off its answer with an error"
        return Reply(status, error_text, text, response.usage.input_tokens, response.usage.output_tokens)


def _model(settings: RolloutSettings, provider: OpenAIProvider) -> Model:
    if settings.dialect == "openai":
        return OpenAIResponsesModel(settings.model, provider=provider)
    return OpenAIChatModel(settings.model, provider=provider)


def _conversation(messages: Sequence[Message]) -> list[ModelMessage]:
    conversation: list[ModelMessage] = []
    for message in messages:
        if message.role == "assistant":
            conversation.append(ModelResponse(parts=[TextPart(message.content)]))
        elif message.role == "system":
            conversation.append(ModelRequest(parts=[SystemPromptPart(message.content)]))
        else:
            conversation.append(ModelRequest(parts=[UserPromptPart(message.content)]))
    return conversation


def _status_of(error: AgentRunError) -> Status:
    if isinstance(error, ModelTimeoutError):
        return Status.TIMEOUT
    if isinstance(error, ModelHTTPError):
        if error.status_code in TIMEOUT_STATUSES:
            return Status.TIMEOUT
        if isinstance(error.body, dict) and error.body.get("code") == "content_filter":
            return Status.REFUSED
    return Status.MODEL_ERROR


def _refusal(response: ModelResponse) -> str:
    words = (response.provider_details or {}).get("refusal")
    return _short(f"the model refused: {words}") if words else "the provider's content filter held the answer back"


def _short(text: str) -> str:
    return " ".join(text.split())[:MAX_ERROR_CHARS]
