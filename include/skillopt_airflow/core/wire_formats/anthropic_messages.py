"""Anthropic's messages API."""

import math
from collections.abc import Sequence

from pydantic import JsonValue

from skillopt_airflow.core.values.pictures import Part, Picture
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.core.wire_formats import wire_format as shape
from skillopt_airflow.core.wire_formats.wire_format import (
    COUNT,
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

_ENCODED = by_type({"base64": {"media_type": NAME, "data!": shape.BASE64}})
# Only the default lifetime in the cache: a longer one costs more.
_CACHED = {"cache_control": by_type({"ephemeral": {}})}
_TEXT = {"text": {"text!": TEXT, **_CACHED}}
_SHOWN = {**_TEXT, "image document": {"source!": _ENCODED, "title": TEXT, **_CACHED}}
_RESULT = either(many(by_type(_SHOWN)), TEXT)
_BLOCK = by_type(
    {
        **_SHOWN,
        "thinking": {"thinking signature": TEXT},
        "redacted_thinking": {"data!": shape.BASE64},
        "tool_use": {"id": TEXT, "name": NAME, "input": shape.OBJECT, **_CACHED},
        "tool_result": {"tool_use_id": TEXT, "content": _RESULT, "is_error": FLAG, **_CACHED},
    }
)
_MESSAGE = fields({"role!": one_of("user", "assistant", "system"), "content!": either(many(_BLOCK), TEXT)})
_TOOL = {"name!": NAME, "description": TEXT, "input_schema": shape.OBJECT, "type": one_of("custom"), "strict": FLAG}
_CHOICE = {"name": NAME, "disable_parallel_tool_use": FLAG}
_REQUEST = {
    **shape.ANSWERING,
    "system": either(many(by_type(_TEXT)), TEXT),
    "messages": many(_MESSAGE),
    "tools": shape.client_tools(fields({**_TOOL, **_CACHED}), None, "custom"),
    "tool_choice": by_type({"auto any tool none": _CHOICE}),
    "max_tokens top_k": COUNT,
    "stop_sequences": many(NAME),
    "thinking": by_type({"enabled": {"budget_tokens": COUNT}, "adaptive disabled": {}}),
    "output_config": fields({"effort": NAME, "format": by_type({"json_schema": {"schema": shape.OBJECT}})}),
    # Claude Code asks to keep all thinking of a conversation.
    "context_management": fields({"edits": many(by_type({"clear_thinking_20251015": {"keep": one_of("all")}}))}),
}


MAX_SIDE, MAX_PICTURE_TOKENS, PIXELS_OF_TOKEN = 1568, 1600, 750
"""Larger pictures are scaled down, to these pixels per side and to these tokens."""


def message_content(pieces: Sequence[Part]) -> JsonValue:
    """Return a single text as a string, and pieces with pictures as a list of blocks."""
    return pieces[0] if len(pieces) == 1 and isinstance(pieces[0], str) else message_blocks(pieces)


def message_blocks(pieces: Sequence[Part]) -> JsonValue:
    return [
        {"type": "image", "source": {"type": "base64", "media_type": piece.media_type, "data": piece.base64}}
        if isinstance(piece, Picture)
        else {"type": "text", "text": piece}
        for piece in pieces
    ]


class AnthropicMessages(WireFormat):
    """Messages, whose usage counts cached prompt tokens separately."""

    name = "anthropic"
    path = "messages"
    address = "https://api.anthropic.com/v1"
    client_adds_version = True
    key_header = "x-api-key"
    headers = {"anthropic-version": "2026-10-21"}  # noqa: RUF012 - annotated in the base
    # The header anthropic-beta has the same meaning.
    queries = (b"", b"beta=true")
    beside_prompt = ("cache_read_input_tokens", "cache_creation_input_tokens")
    usage_within = "message"
    request = fields(_REQUEST)
    betas = (
        *("claude-code", "context-management", "effort"),
        *("interleaved-thinking", "mid-conversation-system", "thinking-token-count"),
    )
    usage_at_end = False
    limits = ("max_tokens",)

    def is_answer(self, document: JsonObject) -> bool:
        return isinstance(document.get("content"), list)

    def picture_tokens(self, width: int, height: int) -> int:
        """Return the tokens of a picture (page "Vision" of Anthropic's documentation)."""
        shrunk = min(1.0, MAX_SIDE / max(width, height))
        return min(MAX_PICTURE_TOKENS, math.ceil(shrunk * width * shrunk * height / PIXELS_OF_TOKEN))

    def sampling(self, reasoning_effort: str | None, thinking: bool | None, thinking_budget: int | None) -> Settings:
        """Set the model's thinking."""
        limited: JsonObject = {"type": "enabled", "budget_tokens": thinking_budget}
        return {
            "thinking": thinking if reasoning_effort is None else reasoning_effort,
            "anthropic_thinking": None if thinking_budget is None else limited,
        }
