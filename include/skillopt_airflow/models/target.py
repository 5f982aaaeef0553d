"""The target model outside of a sandbox: plain replies to conversations, one usage row a request."""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Self, cast

from anyio.from_thread import start_blocking_portal
from pydantic_ai import Agent
from pydantic_ai.exceptions import AgentRunError, FallbackExceptionGroup, ModelHTTPError, UserError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, SystemPromptPart, TextPart, UserPromptPart
from pydantic_ai.settings import ModelSettings
from pydantic_ai.usage import RunUsage

from skillopt_airflow.core.errors import ModelError
from skillopt_airflow.core.sampling import without_thinking
from skillopt_airflow.core.types import JsonObject, Message, ModelCall
from skillopt_airflow.models.metering import calls_of

if TYPE_CHECKING:
    from pydantic_ai.models import Model


class PydanticAITarget:
    """A `Target` over a pydantic-ai model, usable from many threads inside its `with` block."""

    def __init__(self, model: "Model", on_call: Callable[[ModelCall], None], settings: JsonObject) -> None:
        self._model = model
        self._on_call = on_call
        self._settings = cast("ModelSettings", settings)
        self._portals = ExitStack()

    def __enter__(self) -> Self:
        self._portal = self._portals.enter_context(start_blocking_portal())
        self._portals.enter_context(self._portal.wrap_async_context_manager(self._model))
        return self

    def __exit__(self, *error: object) -> None:
        self._portals.close()

    def ask(self, stage: str, messages: Sequence[Message]) -> str:
        """The reply to a conversation that ends with a user's message.

        Raises:
            ModelError: the provider did not answer.
        """
        *history, last = messages
        agent: Agent[None, str] = Agent(self._model, output_type=str, model_settings=self._settings)
        started, clock, usage, status = time.time(), time.monotonic(), RunUsage(), 0
        try:
            said = self._portal.call(
                partial(agent.run, last.content, message_history=[_as_history(m) for m in history], usage=usage)
            )
            status = 200
        except (AgentRunError, FallbackExceptionGroup, UserError) as error:
            status = error.status_code if isinstance(error, ModelHTTPError) else 0
            raise ModelError(f"{stage}: the target model did not answer: {error}") from error
        finally:
            self._record(stage, status, usage, started, time.monotonic() - clock)
        return without_thinking(said.output)

    def _record(self, stage: str, status: int, usage: RunUsage, started: float, seconds: float) -> None:
        name = self._model.model_name
        for call in calls_of(
            usage, role="target", stage=stage, model=name, status=status, started=started, seconds=seconds
        ):
            self._on_call(call)


def _as_history(message: Message) -> ModelMessage:
    if message.role == "assistant":
        return ModelResponse(parts=[TextPart(message.content)])
    if message.role == "system":
        return ModelRequest(parts=[SystemPromptPart(message.content)])
    return ModelRequest(parts=[UserPromptPart(message.content)])
