"""The target model outside a sandbox: plain replies to conversations, with a usage row for each request."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from pydantic_ai import Agent
from pydantic_ai.exceptions import AgentRunError, FallbackExceptionGroup, ModelHTTPError, UserError
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, SystemPromptPart, TextPart, UserPromptPart
from pydantic_ai.models import Model
from pydantic_ai.settings import ModelSettings

from skillopt_airflow.core.errors import ModelError
from skillopt_airflow.core.sampling import without_thinking
from skillopt_airflow.core.types import JsonObject, Message, ModelCall
from skillopt_airflow.models.metering import MeteredModel


class PydanticAITarget(MeteredModel):
    """A `Target` over a pydantic-ai model."""

    role = "target"

    def __init__(self, model: Model, on_call: Callable[[ModelCall], None], settings: JsonObject) -> None:
        super().__init__(model, on_call)
        self._settings = cast("ModelSettings", settings)

    def ask(self, stage: str, messages: Sequence[Message]) -> str:
        """Return the reply to a conversation that ends with a user's message.

        Raises:
            ModelError: the provider did not answer.
        """
        *history, last = messages
        agent: Agent[None, str] = Agent(self._model, output_type=str, model_settings=self._settings)
        with self._metered(stage) as metered:
            try:
                said = self._portal.call(
                    partial(
                        agent.run,
                        last.content,
                        message_history=[_as_history(message) for message in history],
                        usage=metered.usage,
                    )
                )
                metered.status = 200
            except (AgentRunError, FallbackExceptionGroup, UserError) as error:
                metered.status = error.status_code if isinstance(error, ModelHTTPError) else 0
                raise ModelError(f"{stage}: the target model did not answer: {error}") from error
        return without_thinking(said.output)


def _as_history(message: Message) -> ModelMessage:
    if message.role == "assistant":
        return ModelResponse(parts=[TextPart(message.content)])
    return ModelRequest(parts=[(SystemPromptPart if message.role == "system" else UserPromptPart)(message.content)])
