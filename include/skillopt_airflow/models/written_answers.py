"""Reading a structured answer that a model wrapped in other keys, in prose or in a code fence, or broke off."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

from pydantic import BaseModel, JsonValue
from pydantic_ai import ModelRetry
from pydantic_ai.capabilities import Hooks
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart

from skillopt_airflow.core.sampling import without_thinking
from skillopt_airflow.core.scoring.json_answer import json_values, parsed
from skillopt_airflow.core.storable import storable, storable_json
from skillopt_airflow.core.types import JsonObject

MOST_WRAPPERS = 6
"""Objects, lists and strings of JSON around an answer."""
FAILED_GENERATION = "failed_generation"
_BAD_SAMPLES = (FAILED_GENERATION, "tool_use_failed", "json_validate_failed", "output_parse_failed")
"""Words of Groq's 400 for an answer that it couldn't read itself; the same request may succeed."""


def lenient(kind: type[BaseModel], tool: str | None) -> Hooks[None]:
    """Return the hooks by which an agent reads an answer of this kind, or asks again.

    Args:
        kind: the answer.
        tool: name of the output tool, which a model may write down instead of calling it; None without tools.
    """

    async def read(ctx: Any, *, output_context: Any, output: str | JsonObject) -> str | JsonObject:
        found = answer_in(output, kind)
        if found is None and not _required(kind):
            # Otherwise an answer under unknown keys would count as an empty one.
            raise ModelRetry(f"Answer with one JSON object that has these keys: {', '.join(kind.model_fields)}.")
        return output if found is None else found

    async def called(ctx: Any, *, request_context: Any, response: ModelResponse) -> ModelResponse:
        if tool is not None and not response.tool_calls:
            found = answer_in("".join(part.content for part in response.parts if isinstance(part, TextPart)), kind)
            response.parts = response.parts if found is None else [ToolCallPart(tool, found)]
        return response

    async def failed(ctx: Any, *, request_context: Any, error: Exception) -> ModelResponse:
        if not isinstance(error, ModelHTTPError) or error.status_code != 400:
            raise error
        if not any(word in f"{error.message} {error.body}" for word in _BAD_SAMPLES):
            raise error
        return await called(ctx, request_context=None, response=ModelResponse(parts=[TextPart(_written(error.body))]))

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
    if isinstance(value, dict) and _required(kind) <= value.keys() and kind.model_fields.keys() & value.keys():
        yield value
    elif wrappers:
        inner: Iterable[JsonValue] = ()
        if isinstance(value, str):
            with suppress(ValueError):
                inner = [parsed(value)]
        elif isinstance(value, dict | list):
            inner = value.values() if isinstance(value, dict) else value
        for one in inner:
            yield from _fitting(one, kind, wrappers - 1)


def _required(kind: type[BaseModel]) -> set[str]:
    return {name for name, field in kind.model_fields.items() if field.is_required()}


def _written(body: object) -> str:
    """Return the answer that Groq couldn't read, from the body of its error; empty if the body lacks it."""
    inner = body.get("error", body) if isinstance(body, dict) else None
    return str(inner.get(FAILED_GENERATION, "")) if isinstance(inner, dict) else ""
