"""The target as a pydantic-ai model at the gateway, and the statuses of its answers and failures."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, cast

import httpx2
from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import (
    AgentRunError,
    ContentFilterError,
    ModelAPIError,
    ModelHTTPError,
    ModelTimeoutError,
    UnexpectedModelBehavior,
    UserError,
)
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
from pydantic_ai.models import ModelRequestParameters, infer_model
from pydantic_ai.models.wrapper import WrapperModel
from pydantic_ai.providers import Provider, infer_provider_class
from pydantic_ai.settings import ModelSettings

from skillopt_airflow.core.config.sampling import without_thinking
from skillopt_airflow.core.values.failure_reasons import (
    SENTENCES,
    UNREADABLE,
    ending_status,
    error_status,
    lasting_error,
)
from skillopt_airflow.core.values.pictures import Part, Picture, Pictures, message_parts
from skillopt_airflow.core.values.text import clean_parts
from skillopt_airflow.core.values.types import Message, Status
from skillopt_airflow.core.wire_formats import WIRE_FORMATS
from skillopt_airflow.core.wire_formats.wire_format import taking_turns
from skillopt_airflow.rollout.gateway_call import Answer
from skillopt_airflow.rollout.harnesses.conversation import REFUSALS, Reply, reason
from skillopt_airflow.rollout.settings import RolloutSettings


def replay_transport(result: Answer | OSError) -> httpx2.MockTransport:
    """Return a transport that replays an earlier answer or failure for every request."""

    def handle(request: httpx2.Request) -> httpx2.Response:
        if isinstance(result, OSError):
            failure = httpx2.ReadTimeout if isinstance(result, TimeoutError) else httpx2.ReadError
            raise failure("", request=request) from result
        return httpx2.Response(result.status, headers=dict(result.headers), content=result.body)

    return httpx2.MockTransport(handle)


class TargetModel:
    """The model in the wire format of its connection. The gateway adds the key and does the retries.

    `gateway` is its unix socket, or its URL `http://host:port`. `transport` replaces it.
    """

    def __init__(
        self, settings: RolloutSettings, gateway: str, transport: httpx2.AsyncBaseTransport | None = None
    ) -> None:
        base_url = gateway.rstrip("/") if gateway.startswith("http://") else "http://gateway"
        if transport is None:
            socket = None if gateway.startswith("http://") else gateway
            # The gateway doesn't use TLS, and reading certificates takes longer than a call.
            transport = httpx2.AsyncHTTPTransport(verify=False, uds=socket, limits=httpx2.Limits(max_connections=None))
        self._client = client = httpx2.AsyncClient(timeout=settings.patience, transport=transport)
        url = base_url if WIRE_FORMATS[settings.dialect].client_adds_version else f"{base_url}/v1"
        arguments: dict[str, Any] = {"base_url": url, "api_key": "none", "http_client": client}

        def provider(name: str) -> Provider[Any]:
            result: Provider[Any] = infer_provider_class(name)(**arguments)
            return result

        self.model = _CheckedModel(infer_model(f"{settings.dialect}:{settings.model}", provider))
        self.settings = cast("ModelSettings", settings.sampling() | {"timeout": settings.patience, "max_retries": 0})

    async def aclose(self) -> None:
        await self._client.aclose()

    async def ask(self, messages: Sequence[Message], pictures: Pictures) -> Reply:
        turns = [
            _turn(message, self.content(pieces)) for message, pieces in message_parts(taking_turns(messages), pictures)
        ]
        try:
            response = await model_request(self.model, turns, model_settings=self.settings)
        except (AgentRunError, UserError) as error:
            status, why = error_result(error)
            return Reply(status, why, lasting_mark(error))
        status, why = response_status(response)
        usage = response.usage
        return Reply(
            status, why, text=text_of(response), prompt_tokens=usage.input_tokens, completion_tokens=usage.output_tokens
        )

    def content(self, pieces: Sequence[Part]) -> str | list[UserContent]:
        if len(pieces) == 1 and isinstance(pieces[0], str):
            return pieces[0]
        return [
            BinaryContent(piece.content, media_type=piece.media_type) if isinstance(piece, Picture) else piece
            for piece in pieces
        ]


class _UnreadableAnswer(UnexpectedModelBehavior):
    """The server's answer is invalid, and retries won't help."""


class _CheckedModel(WrapperModel):
    """A model that reports invalid answers, on which the providers' clients raise arbitrary exceptions."""

    async def request(
        self,
        messages: list[ModelMessage],
        model_settings: ModelSettings | None,
        model_request_parameters: ModelRequestParameters,
    ) -> ModelResponse:
        try:
            response = await super().request(messages, model_settings, model_request_parameters)
            clean_parts(response.parts)
            for part in response.parts:
                # Some clients don't check the type of a text.
                if isinstance(part, TextPart) and not isinstance(part.content, str):
                    raise TypeError(f"a text is {part.content!r}")
            return response
        except UnexpectedModelBehavior as error:
            raise _UnreadableAnswer(error.message, error.body) from error
        except (AgentRunError, UserError):
            raise
        except Exception as error:
            message = f"the answer of the model server cannot be read: {type(error).__name__}: {error}"
            raise _UnreadableAnswer(message) from error


def text_of(response: ModelResponse) -> str:
    """Return the text without thinking."""
    return without_thinking("".join(part.content for part in response.parts if isinstance(part, TextPart)))


def response_status(response: ModelResponse) -> tuple[Status, str]:
    """Return the status of a response, and the reason if it isn't an answer."""
    details = response.provider_details or {}
    # pydantic-ai doesn't know the finish reasons of single providers.
    status = ending_status(details.get("finish_reason"), response.finish_reason)
    if status is Status.REFUSED:
        refusal = details.get("refusal")
        return status, reason(f"the model refused: {refusal}") if refusal else SENTENCES[status]
    if status is Status.MODEL_ERROR:
        return status, "the provider's answer ended with an error"
    if status is Status.OK and not response.tool_calls and not text_of(response).strip():
        return Status.EMPTY, ""
    return status, ""


def error_result(error: AgentRunError | UserError) -> tuple[Status, str]:
    """Return the status and the reason of a failed call."""
    status = _status(error)
    return status, reason(f"{SENTENCES[status]}: {error}" if status in SENTENCES else str(error))


def lasting_mark(error: AgentRunError | UserError) -> str:
    """Return the mark of a permanent failure; empty if a retry may succeed."""
    if isinstance(error, UserError):
        # pydantic-ai refuses requests that the server would refuse.
        return lasting_error(HTTPStatus.BAD_REQUEST)
    if isinstance(error, _UnreadableAnswer):
        return UNREADABLE
    if isinstance(error, ModelHTTPError) and _status(error) is Status.MODEL_ERROR:
        # "garbage" is the gateway's code for an invalid answer.
        return UNREADABLE if _code(error.body) == "garbage" else lasting_error(error.status_code)
    return ""


def _status(error: AgentRunError | UserError) -> Status:
    if isinstance(error, ModelTimeoutError):
        return Status.TIMEOUT
    if isinstance(error, ContentFilterError):
        return Status.REFUSED
    if isinstance(error, ModelHTTPError):
        if (status := error_status(error.status_code, error.body)) is not None:
            return status
        # A provider's 402 means an empty account, not the run's budget.
        if error.status_code != 402 or _code(error.body) == "budget":
            return REFUSALS.get(error.status_code, Status.MODEL_ERROR)
    elif isinstance(error, ModelAPIError):
        return error_status(0, str(error)) or Status.MODEL_ERROR
    return Status.MODEL_ERROR


def _code(body: object) -> object:
    """Return the code of an error. OpenAI's client keeps the inner object, Anthropic's the whole document."""
    inner = body.get("error", body) if isinstance(body, dict) else None
    return inner.get("code") if isinstance(inner, dict) else None


def _turn(message: Message, content: str | list[UserContent]) -> ModelMessage:
    if message.role == "assistant":
        return ModelResponse(parts=[TextPart(message.content)])
    part = SystemPromptPart(message.content) if message.role == "system" else UserPromptPart(content)
    return ModelRequest(parts=[part])
