"""OpenAI's chat completions, which most compatible servers implement."""

import json
from collections.abc import Sequence

from pydantic import JsonValue

from skillopt_airflow.core.values.pictures import Part, Picture
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.core.wire_formats import wire_format as shape
from skillopt_airflow.core.wire_formats.wire_format import (
    FLAG,
    NAME,
    TEXT,
    Settings,
    WireFormat,
    by_type,
    either,
    fields,
    many,
    one_of,
)

_PART = by_type(
    {
        "text": {"text!": TEXT},
        "refusal": {"refusal": TEXT},
        "image_url": {"image_url!": fields({"url!": shape.IMAGE_URL, "detail": NAME})},
    }
)
# Gemini requires its signed thoughts in later requests.
_SIGNED = {"extra_content": fields({"google": fields({"thought_signature": TEXT})})}
_CALL = {"id": TEXT, "type": one_of("function"), "function!": fields({"name! arguments!": TEXT}), **_SIGNED}
_MESSAGE = {
    "role!": one_of("system", "developer", "user", "assistant", "tool"),
    "content": either(many(_PART), TEXT),
    "name": NAME,
    "refusal reasoning reasoning_content tool_call_id": TEXT,
    "tool_calls": many(fields(_CALL)),
}
_REQUEST = {
    **shape.ANSWERING,
    "messages": many(fields(_MESSAGE)),
    "tools": shape.client_tools(by_type({"function": {"function!": fields(shape.FUNCTION)}}), "function"),
    "tool_choice": either(by_type({"function": {"function": fields({"name": NAME})}}), shape.CHOICE),
    "max_tokens max_completion_tokens": shape.COUNT,
    "seed": shape.INTEGER,
    "stop": either(many(NAME), NAME),
    "frequency_penalty presence_penalty": shape.NUMBER,
    "reasoning_effort": NAME,
    "stream_options": fields({"include_usage": FLAG}),
    "response_format": by_type({"text json_object": {}, "json_schema": {"json_schema": fields(shape.OUTPUT_SCHEMA)}}),
    # For the knob `thinking`; other names could replace the template.
    "chat_template_kwargs": fields({"enable_thinking": FLAG, "thinking_budget": shape.COUNT}),
}


def chat_content(pieces: Sequence[Part]) -> JsonValue:
    """Return a single text as a string, which all servers accept, and pieces with pictures as a list of parts."""
    if len(pieces) == 1 and isinstance(pieces[0], str):
        return pieces[0]
    return [
        {"type": "image_url", "image_url": {"url": piece.data_url}}
        if isinstance(piece, Picture)
        else {"type": "text", "text": piece}
        for piece in pieces
    ]


class OpenAIChat(WireFormat):
    name = "openai-chat"
    path = "chat/completions"
    address = "https://api.openai.com/v1"
    below_deployment = True
    event_field = ("choices", list)
    request = fields(_REQUEST)
    limits = ("max_tokens", "max_completion_tokens")

    def is_answer(self, document: JsonObject) -> bool:
        choices, own = document.get("choices"), document.get("base_resp")
        # MiniMax sends its errors with status 200.
        failed = isinstance(own, dict) and bool(own.get("status_code"))
        return isinstance(choices, list) and bool(choices) and all(map(_is_whole, choices)) and not failed

    def whole(self, document: JsonObject, text: bytes) -> bytes:
        """Remove empty finish reasons, which OpenAI clients reject."""
        choices = document["choices"]
        all_choices = choices if isinstance(choices, list) else []
        empty = [one for one in all_choices if isinstance(one, dict) and one.get("finish_reason") == ""]
        for choice in empty:
            choice["finish_reason"] = None
        return json.dumps(document).encode() if empty else text

    def prepared(self, request: JsonObject) -> JsonObject:
        """Request the usage of a stream, which servers omit by default."""
        if request.get("stream") is not True:
            return request
        options = request.get("stream_options")
        return request | {"stream_options": (options if isinstance(options, dict) else {}) | {"include_usage": True}}

    def sampling(self, reasoning_effort: str | None, thinking: bool | None, thinking_budget: int | None) -> Settings:
        """Set thinking in the chat template of servers such as vLLM, and its limit for templates such as Seed-OSS's."""
        arguments = {"enable_thinking": thinking, "thinking_budget": thinking_budget}
        template: JsonObject = {name: value for name, value in arguments.items() if value is not None}
        return {
            # pydantic-ai's `thinking` has no effect for models that it doesn't know.
            "openai_reasoning_effort": reasoning_effort,
            "extra_body": {"chat_template_kwargs": template} if template else None,
        }


def _is_whole(choice: JsonValue) -> bool:
    # OpenRouter reports with status 200 that its provider failed during an answer.
    return (
        isinstance(choice, dict)
        and isinstance(choice.get("message"), dict)
        and choice.get("finish_reason") != "error"
        and not choice.get("error")
    )
