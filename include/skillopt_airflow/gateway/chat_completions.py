"""Conversion between OpenAI's chat completions and pydantic-ai's messages."""

import json
import time
import uuid
from collections.abc import Sequence
from typing import Annotated, Any, Literal, cast

from pydantic import BaseModel, FailFast, Field, JsonValue
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
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.settings import ModelSettings, ToolChoice
from pydantic_ai.tools import ToolDefinition

from skillopt_airflow.core.sampling import translated_budget
from skillopt_airflow.core.types import JsonObject, Status

FINISH_REASONS = {Status.TRUNCATED: "length", Status.REFUSED: "content_filter"}
SAME_NAMES = ("temperature", "top_p", "seed", "parallel_tool_calls")


class TextContent(BaseModel):
    """A text part of a message."""

    type: Literal["text"]
    text: str


class ImageAddress(BaseModel):
    """A picture as an address that holds it; one that has to be fetched does not get here."""

    url: str
    detail: str | None = None


class ImageContent(BaseModel):
    """A picture part of a message."""

    type: Literal["image_url"]
    image_url: ImageAddress


class NamedFunction(BaseModel):
    """A function by its name."""

    name: str


class CalledFunction(NamedFunction):
    """A function and its arguments as JSON."""

    arguments: str


class ToolCall(BaseModel):
    """A call that the model asked for."""

    id: str
    function: CalledFunction


class ChatMessage(BaseModel):
    """One turn."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[TextContent | ImageContent] | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str = ""

    @property
    def text(self) -> str:
        """The content, joined if it comes in parts."""
        if isinstance(self.content, list):
            return "".join(piece.text for piece in self.content if isinstance(piece, TextContent))
        return "" if self.content is None else self.content

    @property
    def parts(self) -> str | list[UserContent]:
        """The content with its pictures, as pydantic-ai has it."""
        if not isinstance(self.content, list) or all(isinstance(piece, TextContent) for piece in self.content):
            return self.text
        return [
            piece.text if isinstance(piece, TextContent) else BinaryContent.from_data_uri(piece.image_url.url)
            for piece in self.content
        ]

    @property
    def calls(self) -> Sequence[ToolCall]:
        """The calls, if there are any."""
        return () if self.tool_calls is None else self.tool_calls


class Function(BaseModel):
    """A function that the model may call."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] = {"type": "object", "properties": {}}
    strict: bool | None = None


class Tool(BaseModel):
    """A tool that the model may use."""

    type: Literal["function"]
    function: Function


class NamedTool(BaseModel):
    """The one tool that the model has to use."""

    function: NamedFunction


class ResponseFormat(BaseModel):
    """The format of the answer; a schema is not translated."""

    type: Literal["text"]


class ChatRequest(BaseModel):
    """A request, with the fields that pydantic-ai's other models support."""

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
    """The answer comes whole."""

    def settings(self) -> ModelSettings:
        """Return the request's settings; what is missing is left to the provider."""
        settings: dict[str, Any] = {name: getattr(self, name) for name in SAME_NAMES}
        settings["max_tokens"] = self.max_tokens if self.max_completion_tokens is None else self.max_completion_tokens
        settings["stop_sequences"] = [self.stop] if isinstance(self.stop, str) else self.stop
        settings["thinking"] = self._thinking()
        settings["tool_choice"] = self._tool_choice()
        budget = self.chat_template_kwargs.get("thinking_budget")
        settings |= translated_budget(budget if isinstance(budget, int) else None)
        return cast("ModelSettings", {name: value for name, value in settings.items() if value is not None})

    def parameters(self) -> ModelRequestParameters:
        """Return the tools."""
        functions = [tool.function for tool in self.tools or ()]
        return ModelRequestParameters(
            function_tools=[
                ToolDefinition(
                    name=function.name,
                    description=function.description,
                    parameters_json_schema=function.parameters,
                    strict=function.strict,
                )
                for function in functions
            ]
        )

    def _thinking(self) -> bool | str | None:
        if self.reasoning_effort is not None:
            return False if self.reasoning_effort == "none" else self.reasoning_effort
        switch = self.chat_template_kwargs.get("enable_thinking")
        return switch if isinstance(switch, bool) else None

    def _tool_choice(self) -> ToolChoice:
        return [self.tool_choice.function.name] if isinstance(self.tool_choice, NamedTool) else self.tool_choice


def conversation(messages: Sequence[ChatMessage]) -> list[ModelMessage]:
    """Return the turns as pydantic-ai has them: everything between two answers becomes one request."""
    turns: list[ModelMessage] = []
    asked: list[ModelRequestPart] = []
    called: dict[str, str] = {}
    for message in messages:
        if message.role != "assistant":
            asked.append(_request_part(message, called))
            continue
        if asked:
            turns.append(ModelRequest(parts=asked))
            asked = []
        turns.append(_response(message))
        called |= {call.id: call.function.name for call in message.calls}
    if asked:
        turns.append(ModelRequest(parts=asked))
    return turns


def completion(response: ModelResponse, model: str, status: Status = Status.OK) -> JsonObject:
    """Return a response as a chat completion, with the model's thinking beside its answer as in vLLM."""
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
        "usage": told_usage(response),
    }


def told_usage(response: ModelResponse) -> JsonObject:
    """Return the tokens of a response as a chat completion tells them."""
    usage = response.usage
    return {
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.input_tokens + usage.output_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cache_read_tokens},
    }


def _request_part(message: ChatMessage, called: dict[str, str]) -> ModelRequestPart:
    if message.role == "user":
        return UserPromptPart(message.parts)
    if message.role == "tool":
        name = called.get(message.tool_call_id, "")
        return ToolReturnPart(name, message.text, tool_call_id=message.tool_call_id)
    return SystemPromptPart(message.text)


def _response(message: ChatMessage) -> ModelResponse:
    parts = [TextPart(message.text)] if message.text else []
    calls = [ToolCallPart(call.function.name, call.function.arguments, tool_call_id=call.id) for call in message.calls]
    return ModelResponse(parts=[*parts, *calls])


def _tool_call(call: ToolCallPart) -> JsonObject:
    arguments = call.args if isinstance(call.args, str) else json.dumps({} if call.args is None else call.args)
    return {"id": call.tool_call_id, "type": "function", "function": {"name": call.tool_name, "arguments": arguments}}
