"""Reading a structured answer that a model wrapped in other keys, in prose or in a code fence, or broke off."""

import re
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from pydantic import BaseModel, JsonValue
from pydantic_ai import ModelRetry
from pydantic_ai.capabilities import Hooks
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

from skillopt_airflow.core.sampling import without_thinking
from skillopt_airflow.core.scoring.json_answer import json_values, parsed
from skillopt_airflow.core.storable import clean_parts, storable, storable_json
from skillopt_airflow.core.types import JsonObject

MOST_WRAPPERS = 6
"""Objects, lists and strings of JSON around an answer."""
_BAD_SAMPLE = re.compile(
    r"^400 .*(?:failed_generation|tool_use_failed|(?:json_validate|output_parse)_failed)", re.DOTALL
)
"""Groq's words for an answer that it couldn't read itself; the same request may succeed."""


def lenient(kind: type[BaseModel], tool: str | None) -> Hooks[None]:
    """Return the hooks by which an agent reads an answer of this kind, or asks again.

    A model may write a call of the output tool down instead of making it; `tool` is its name, or None without tools.
    """

    async def read(ctx: Any, *, output_context: Any, output: str | JsonObject) -> str | JsonObject:
        found = answer_in(output, kind)
        if found is None and not _required(kind):
            # Otherwise an answer under unknown keys would count as an empty one.
            raise ModelRetry(f"Answer with one JSON object that has these keys: {', '.join(kind.model_fields)}.")
        return output if found is None else found

    async def called(ctx: Any, *, request_context: Any, response: ModelResponse) -> ModelResponse:
        clean_parts(response.parts)
        if tool is not None and not response.tool_calls and (found := answer_in(response.text or "", kind)) is not None:
            response.parts = [ToolCallPart(tool, found)]
        return response

    async def failed(ctx: Any, *, request_context: Any, error: Exception) -> ModelResponse:
        if not isinstance(error, ModelHTTPError) or not _BAD_SAMPLE.search(f"{error.status_code} {error}"):
            raise error
        inner = error.body.get("error", error.body) if isinstance(error.body, dict) else None
        written = inner.get("failed_generation") if isinstance(inner, dict) else None
        return await called(ctx, request_context=None, response=ModelResponse(parts=[TextPart(str(written or ""))]))

    return Hooks(before_output_validate=read, after_model_request=called, model_request_error=failed)


def answer_in(written: str | JsonObject, kind: type[BaseModel]) -> JsonObject | None:
    """Return the last object that a model wrote with all required fields and at least one field; None without one."""
    values: list[JsonValue] = [written]
    if isinstance(written, str):
        try:
            values = [parsed(written)]
        except ValueError:
            values = json_values(without_thinking(written))
    for value in reversed(values):
        found = list(_fitting(value, kind, MOST_WRAPPERS))
        if len(found) == 1:
            # Escapes within the JSON may stand for half a character.
            return {storable(name): storable_json(field) for name, field in found[0].items()}
    return None


def _fitting(value: JsonValue, kind: type[BaseModel], wrappers: int) -> Iterator[JsonObject]:
    inner: list[JsonValue] = value if isinstance(value, list) else []
    if isinstance(value, str):
        with suppress(ValueError):
            inner = [parsed(value)]
    elif isinstance(value, dict):
        if _required(kind) <= value.keys() and kind.model_fields.keys() & value.keys():
            yield value
            return
        inner = list(value.values())
    for one in inner if wrappers else ():
        yield from _fitting(one, kind, wrappers - 1)


def _required(kind: type[BaseModel]) -> set[str]:
    return {name for name, field in kind.model_fields.items() if field.is_required()}
