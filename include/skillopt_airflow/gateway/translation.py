"""Chat completions, translated by pydantic-ai for providers with their own format, such as Bedrock."""

import hashlib
import json
import os
import time
import uuid
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from itertools import groupby, takewhile
from typing import Annotated, Any, Literal, cast

import httpx
from openai.types.chat import ChatCompletion
from pydantic import BaseModel, FailFast, Field, JsonValue, ValidationError
from pydantic_ai.direct import model_request
from pydantic_ai.exceptions import ModelAPIError, ModelHTTPError, ModelRequestTimeout, ModelTimeoutError, UserError
from pydantic_ai.messages import (
    BinaryContent,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    SystemPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.models import Model, ModelRequestParameters, infer_model
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers import Provider, infer_provider_class
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition

from skillopt_airflow.core.config.sampling import translated_budget
from skillopt_airflow.core.errors import ModelConnectionError
from skillopt_airflow.core.values.documents import flaws
from skillopt_airflow.core.values.failure_reasons import CODES, ending_status, error_status
from skillopt_airflow.core.values.text import clean_parts
from skillopt_airflow.core.values.types import JsonObject, Status
from skillopt_airflow.gateway.backends import error_response
from skillopt_airflow.gateway.upstream import ADDRESS_ARGUMENTS, Upstream

FINISH_REASONS = {Status.TRUNCATED: "length", Status.REFUSED: "content_filter"}

NO_CREDENTIALS = ("NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError")
"""Exceptions of AWS's and Google's clients if neither the connection nor the environment has credentials."""
MAX_KEPT_CHARS = 16 * 1024 * 1024
"""Limit for the stored answers with tool calls, whose thinking is part of the next request."""
CREDENTIALS = frozenset({"authorization", "api-key", "x-api-key"})
NO_ADDRESS = "its provider has no default address. Set the URL of the server as its host"


class TextContent(BaseModel):
    type: Literal["text"]
    text: str


class ImageAddress(BaseModel):
    """A picture as a data URI; the request filter refuses other URLs."""

    url: str
    detail: str | None = None


class ImageContent(BaseModel):
    type: Literal["image_url"]
    image_url: ImageAddress


class NamedFunction(BaseModel):
    name: str


class CalledFunction(NamedFunction):
    arguments: str


class ToolCall(BaseModel):
    id: str
    function: CalledFunction


class ChatMessage(BaseModel):
    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextContent | ImageContent] | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str = ""

    @property
    def text(self) -> str:
        if isinstance(self.content, list):
            return "".join(piece.text for piece in self.content if isinstance(piece, TextContent))
        return "" if self.content is None else self.content

    @property
    def parts(self) -> str | list[UserContent]:
        if not isinstance(self.content, list) or all(isinstance(piece, TextContent) for piece in self.content):
            return self.text
        return [
            piece.text if isinstance(piece, TextContent) else BinaryContent.from_data_uri(piece.image_url.url)
            for piece in self.content
        ]


class Function(BaseModel):
    """A function with the fields of pydantic-ai's ToolDefinition."""

    name: str
    description: str | None = None
    parameters_json_schema: dict[str, Any] = Field({"type": "object", "properties": {}}, validation_alias="parameters")
    strict: bool | None = None


class Tool(BaseModel):
    type: Literal["function"]
    function: Function


class NamedTool(BaseModel):
    function: NamedFunction


class ResponseFormat(BaseModel):
    type: Literal["text"]
    """Schemas aren't supported."""


class ChatRequest(BaseModel):
    """A request with the fields that pydantic-ai supports for other providers."""

    messages: Annotated[list[ChatMessage], FailFast(), Field(min_length=1)]
    tools: list[Tool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedTool | None = None
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    chat_template_kwargs: dict[str, JsonValue] = {}
    response_format: ResponseFormat | None = None
    n: Literal[1] | None = None
    stream: Literal[False] | None = None

    def settings(self) -> ModelSettings:
        settings = self.model_dump(include={"temperature", "top_p", "seed", "parallel_tool_calls"})
        settings["max_tokens"] = self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens
        settings["stop_sequences"] = [self.stop] if isinstance(self.stop, str) else self.stop
        settings["thinking"] = self._thinking()
        choice = self.tool_choice
        settings["tool_choice"] = [choice.function.name] if isinstance(choice, NamedTool) else choice
        budget = self.chat_template_kwargs.get("thinking_budget")
        settings |= translated_budget(budget if isinstance(budget, int) else None)
        return cast("ModelSettings", {name: value for name, value in settings.items() if value is not None})

    def parameters(self) -> ModelRequestParameters:
        return ModelRequestParameters(
            function_tools=[ToolDefinition(**tool.function.model_dump()) for tool in self.tools or ()]
        )

    def _thinking(self) -> bool | str | None:
        if self.reasoning_effort is not None:
            return False if self.reasoning_effort == "none" else self.reasoning_effort
        switch = self.chat_template_kwargs.get("enable_thinking")
        return switch if isinstance(switch, bool) else None


def conversation(messages: Sequence[ChatMessage]) -> list[ModelMessage]:
    """Return pydantic-ai's messages. All messages between two answers become one request."""
    turns: list[ModelMessage] = []
    tool_names: dict[str, str] = {}
    for is_answer, group in groupby(messages, key=lambda message: message.role == "assistant"):
        if not is_answer:
            turns.append(ModelRequest(parts=[_request_part(message, tool_names) for message in group]))
            continue
        for message in group:
            turns.append(_response(message))
            tool_names |= {call.id: call.function.name for call in message.tool_calls or ()}
    return turns


def completion(response: ModelResponse, model: str, status: Status = Status.OK) -> JsonObject:
    """Return a response as a chat completion, with the model's thinking in the same field as vLLM."""
    calls = [part for part in response.parts if isinstance(part, ToolCallPart)]
    text = "".join(part.content for part in response.parts if isinstance(part, TextPart))
    thinking = "".join(part.content for part in response.parts if isinstance(part, ThinkingPart))
    message: JsonObject = {"role": "assistant", "content": text if text or not calls else None}
    if thinking:
        message["reasoning_content"] = thinking
    if calls:
        message["tool_calls"] = [_tool_call(call) for call in calls]
    reason = FINISH_REASONS.get(status, "tool_calls" if calls else "stop")
    return {
        "id": response.provider_response_id or f"chatcmpl-{uuid.uuid4().hex}",
        "object": "chat.completion",
        "created": int(time.time()),
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}],
        "usage": usage_document(response),
    }


def usage_document(response: ModelResponse) -> JsonObject:
    usage = response.usage
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
    }


def _request_part(message: ChatMessage, tool_names: dict[str, str]) -> ModelRequestPart:
    if message.role == "user":
        return UserPromptPart(message.parts)
    if message.role == "tool":
        name = tool_names.get(message.tool_call_id, "")
        return ToolReturnPart(name, message.text, tool_call_id=message.tool_call_id)
    return SystemPromptPart(message.text)


def _response(message: ChatMessage) -> ModelResponse:
    parts = [TextPart(message.text)] if message.text else []
    calls = [
        ToolCallPart(call.function.name, call.function.arguments, tool_call_id=call.id)
        for call in message.tool_calls or ()
    ]
    return ModelResponse(parts=[*parts, *calls])


def _tool_call(call: ToolCallPart) -> JsonObject:
    arguments = call.args if isinstance(call.args, str) else json.dumps({} if call.args is None else call.args)
    return {"id": call.tool_call_id, "type": "function", "function": {"name": call.tool_name, "arguments": arguments}}


class TranslatingBackend:
    """A backend for chat completions whose provider has another format."""

    _kept_chars = 0

    def __init__(self, upstream: Upstream, timeout: float) -> None:
        self._upstream = upstream
        self._timeout = timeout
        self._model = translated_model(upstream, timeout)
        # Claude needs its signed thinking back before its tool calls, and chat completions have no field for it.
        self._thought: OrderedDict[str, ModelResponse] = OrderedDict()

    async def send(self, body: bytes, headers: Mapping[str, str]) -> httpx.Response:
        """Send one request, see `Backend`. Headers aren't forwarded: they belong to the client's wire format."""
        try:
            request = ChatRequest.model_validate_json(body)
        except ValidationError as error:
            refusal = f"connection {self._upstream.conn_id} cannot translate the request for its provider"
            return error_response(400, f"{refusal}: {flaws(error, 3):.1000}")
        settings = request.settings()
        settings["request_timeout"] = self._timeout
        if "max_retries" not in self._model.unsupported_settings:
            settings["max_retries"] = 0
        opening = _opening(request.messages)
        turns = [self._thought.get(_thinking_key(turn, opening), turn) for turn in conversation(request.messages)]
        try:
            response = await model_request(
                self._model, turns, model_settings=settings, model_request_parameters=request.parameters()
            )
        except (ModelRequestTimeout, ModelTimeoutError) as error:
            raise httpx.ReadTimeout(str(error)) from error
        except ModelAPIError as error:
            return _provider_error(error)
        except UserError as error:
            return error_response(400, str(error))
        except Exception as error:  # noqa: BLE001 - a client of any provider
            if type(error).__name__ in NO_CREDENTIALS:
                reason = "has no credentials, and the environment has none"
                return error_response(401, f"connection {self._upstream.conn_id} {reason}: {error}")
            return error_response(502, f"the provider's client returned no answer: {error!r}")
        clean_parts(response.parts)
        status = ending_status((response.provider_details or {}).get("finish_reason"), response.finish_reason)
        if status is Status.MODEL_ERROR:
            # The provider charges for the incomplete answer.
            return error_response(502, "the provider's answer ended with an error", usage=usage_document(response))
        self._keep_thinking(response, opening)
        return httpx.Response(200, json=completion(response, self._upstream.model, status))

    async def aclose(self) -> None:
        async with self._model:
            pass

    def _keep_thinking(self, response: ModelResponse, opening: str) -> None:
        key = _thinking_key(response, opening)
        # Gemini's signatures are in the details of the tool calls.
        thought = any(isinstance(part, ThinkingPart) or part.provider_details for part in response.parts)
        if key and thought:
            self._forget(key)
            self._thought[key] = response
            self._kept_chars += len(str(response.parts))
            while self._kept_chars > MAX_KEPT_CHARS:
                self._forget(next(iter(self._thought)))

    def _forget(self, key: str) -> None:
        if (response := self._thought.pop(key, None)) is not None:
            self._kept_chars -= len(str(response.parts))


def translated_model(upstream: Upstream, timeout: float) -> Model:
    """Return pydantic-ai's model of a translated upstream, without retries. Raises ModelConnectionError."""
    bedrock = upstream.provider == "bedrock"
    arguments = ({"aws_read_timeout": timeout} if bedrock else {}) | json.loads(upstream.arguments.get_secret_value())
    model: Any = provider_model(upstream.conn_id, f"{upstream.provider}:{upstream.model}", arguments)
    if bedrock:
        # boto3 would retry each of the gateway's tries, and its client has no option against it.
        model.client.meta.events.unregister("needs-retry.bedrock-runtime", unique_id="retry-config-bedrock-runtime")
    return cast("Model", model)


def provider_model(conn_id: str, name: str, arguments: Mapping[str, Any]) -> Model:
    """Return pydantic-ai's model `provider:name` with the URL and credentials of these arguments only.

    Raises ModelConnectionError if the provider isn't installed, refuses the arguments, or would use the environment's.
    """
    has_url = not set(arguments).isdisjoint(ADDRESS_ARGUMENTS)
    own_keys = sorted({"aws_access_key_id", "profile_name"}.intersection(arguments))
    if own_keys and "api_key" not in arguments and (variable := "AWS_BEARER_TOKEN_BEDROCK") in os.environ:
        raise ModelConnectionError(f"connection {conn_id}: {variable} would replace its {own_keys[0]}. Unset it")
    try:
        model = infer_model(
            name, lambda named: without_environment(infer_provider_class(named)(**arguments), has_url=has_url)
        )
    except Exception as error:
        reason = str(error) if isinstance(error, UserError | ImportError) else f"{type(error).__name__}: {error}"
        if "base_url" in reason and not has_url:
            reason = NO_ADDRESS
        raise ModelConnectionError(f"connection {conn_id}: {reason}") from error
    return accept_unnamed_endings(model)


def without_environment(provider: Provider[Any], *, has_url: bool) -> Provider[Any]:
    """Return the provider without the account headers that OpenAI's SDK reads from the environment.

    Raises UserError if the environment would replace the key, or set the URL that the connection doesn't.
    """
    for client in vars(provider).values():
        headers = getattr(client, "_custom_headers", {})
        if not CREDENTIALS.isdisjoint(name.lower() for name in headers):
            raise UserError(f"headers of the environment would replace its key ({', '.join(headers)}). Unset them")
        if hasattr(client, "organization") and hasattr(client, "project"):
            from openai import omit

            # The client is copied for each call, and the copies keep headers but no other attributes.
            client._custom_headers = {**headers, "OpenAI-Organization": omit, "OpenAI-Project": omit}
    if not has_url:
        called = httpx.URL(str(provider.base_url))
        if called.host == "api.openai.com" and provider.name != "openai":
            raise UserError(NO_ADDRESS)
        for variable, value in os.environ.items():
            if value.startswith((f"http://{called.host}", f"https://{called.host}")) and called.host:
                raise UserError(f"{variable} of the environment sets its address to {called}. Unset it, or set a host")
    return provider


def accept_unnamed_endings(model: Model) -> Model:
    """Accept a missing finish reason, as some OpenAI-compatible servers send it."""
    if isinstance(model, OpenAIChatModel):
        validated = model._validate_completion

        def named(response: ChatCompletion) -> Any:
            for choice in response.choices or ():
                choice.finish_reason = choice.finish_reason or "stop"
            return validated(response)

        model._validate_completion = named  # type: ignore[method-assign]
    return model


def _opening(messages: Sequence[ChatMessage]) -> str:
    first = takewhile(lambda message: message.role != "assistant", messages)
    return hashlib.sha256(b"".join(message.model_dump_json().encode() for message in first)).hexdigest()


def _thinking_key(turn: ModelMessage, opening: str) -> str:
    """Return a unique key of a turn with tool calls; empty without any.

    The calls' IDs aren't enough, because some models restart them in each conversation.
    """
    calls = [part for part in turn.parts if isinstance(part, ToolCallPart)]
    fields = [(call.tool_call_id, call.tool_name, call.args_as_json_str()) for call in calls]
    return opening + json.dumps(fields) if fields else ""


def _provider_error(error: ModelAPIError) -> httpx.Response:
    """Return an error with its HTTP status, and with the gateway's code if the provider refused the prompt."""
    http_status, body = (error.status_code, error.body) if isinstance(error, ModelHTTPError) else (0, error.message)
    if (status := error_status(http_status, body)) is not None:
        return error_response(http_status if 400 <= http_status < 500 else 400, error.message, CODES[status])
    if not isinstance(error, ModelHTTPError):
        raise httpx.ConnectError(str(error)) from error
    response = error_response(http_status, error.message)
    if error.retry_after is not None:
        response.headers["retry-after"] = str(error.retry_after)
    return response
