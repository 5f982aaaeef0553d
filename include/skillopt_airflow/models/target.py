"""The target model outside a sandbox: plain replies to conversations, with one usage row per request."""

from collections.abc import Sequence
from functools import partial

from pydantic_ai import Agent
from pydantic_ai.exceptions import AgentRunError, FallbackExceptionGroup, UserError
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    UserContent,
    UserPromptPart,
)

from skillopt_airflow.core.config.sampling import without_thinking
from skillopt_airflow.core.errors import ModelError
from skillopt_airflow.core.values.pictures import Part, Picture, Pictures, message_parts
from skillopt_airflow.core.values.text import storable
from skillopt_airflow.core.values.types import Message
from skillopt_airflow.core.wire_formats.wire_format import taking_turns
from skillopt_airflow.models.metering import MeteredModel


class PydanticAITarget(MeteredModel):
    """A `Target` with a pydantic-ai model, whose client makes `max_attempts` tries per call."""

    def ask(self, stage: str, messages: Sequence[Message], pictures: Pictures) -> str:
        """Return the reply to a conversation that ends with a user's message. Raises ModelError without an answer."""
        *history, (_, question) = message_parts(taking_turns(messages), pictures)
        agent: Agent[None, str] = Agent(self._model, output_type=str, model_settings=self._settings)
        with self._metered(stage) as metered:
            try:
                result = self._portal.call(
                    partial(
                        agent.run,
                        _content(question),
                        message_history=[_as_history(message, pieces) for message, pieces in history],
                        usage=metered.usage,
                    )
                )
            except (AgentRunError, FallbackExceptionGroup, UserError) as error:
                raise ModelError(f"{stage}: the target model did not answer: {error}") from error
        return without_thinking(storable(result.output))


def _as_history(message: Message, pieces: Sequence[Part]) -> ModelMessage:
    if message.role == "assistant":
        return ModelResponse(parts=[TextPart(message.content)])
    if message.role == "system":
        return ModelRequest(parts=[SystemPromptPart(message.content)])
    return ModelRequest(parts=[UserPromptPart(_content(pieces))])


def _content(pieces: Sequence[Part]) -> str | list[UserContent]:
    if len(pieces) == 1 and isinstance(pieces[0], str):
        return pieces[0]
    return [
        BinaryContent(piece.content, media_type=piece.media_type) if isinstance(piece, Picture) else piece
        for piece in pieces
    ]
