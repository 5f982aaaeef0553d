"""OpenAI's responses API."""

from pydantic_core import core_schema

from skillopt_airflow.core.types import JsonObject
from skillopt_airflow.core.wire_formats.request_shape import (
    ANSWERING,
    COUNT,
    FLAG,
    FUNCTION,
    IMAGE_URL,
    NAME,
    OBJECT,
    TEXT,
    by_type,
    client_tools,
    either,
    fields,
    many,
    one_of,
)
from skillopt_airflow.core.wire_formats.wire_format import Settings, WireFormat

_CONTENT = either(
    many(
        by_type(
            input_text={"text": TEXT},
            output_text={"text": TEXT},
            input_image={"image_url": IMAGE_URL, "detail": NAME},
            refusal={"refusal": TEXT},
        )
    ),
    TEXT,
)
_MESSAGE = {
    "id": NAME,
    "role": one_of("system", "developer", "user", "assistant"),
    "content": _CONTENT,
    "status": NAME,
    "phase": NAME,
}
_CALL = {"id": NAME, "call_id": NAME, "namespace": NAME, "name": NAME, "status": NAME}
_RESULT = {"id": NAME, "call_id": NAME, "output": _CONTENT, "status": NAME}
_ITEM = either(
    by_type(
        message=_MESSAGE,
        function_call={**_CALL, "arguments": TEXT},
        function_call_output=_RESULT,
        custom_tool_call={**_CALL, "input": TEXT},
        custom_tool_call_output=_RESULT,
        reasoning={
            "id": NAME,
            "summary": many(by_type(summary_text={"text": TEXT})),
            "content": many(by_type(reasoning_text={"text": TEXT})),
            "encrypted_content": TEXT,
            "status": NAME,
        },
    ),
    # Its type may be missing.
    fields("role", "content", **_MESSAGE),
)
_KINDS = {
    "function": FUNCTION,
    "custom": {
        "name": NAME,
        "description": TEXT,
        "format": by_type(text={}, grammar={"syntax": one_of("lark", "regex"), "definition": TEXT}),
    },
}
_TOOLS = client_tools(by_type(**_KINDS), *_KINDS)
_SPACE = {"name": NAME, "description": TEXT, "tools": _TOOLS}
_REQUEST = fields(
    "model",
    **ANSWERING,
    input=either(many(_ITEM), TEXT),
    instructions=TEXT,
    tools=client_tools(by_type(**_KINDS, namespace=_SPACE), *_KINDS, "namespace"),
    tool_choice=either(by_type(function={"name": NAME}, custom={"name": NAME}), one_of("none", "auto", "required")),
    parallel_tool_calls=FLAG,
    max_output_tokens=COUNT,
    reasoning=fields(effort=NAME, summary=NAME),
    text=fields(
        verbosity=NAME,
        format=by_type(
            text={},
            json_object={},
            json_schema={"name": NAME, "description": TEXT, "schema": OBJECT, "strict": FLAG},
        ),
    ),
    include=many(one_of("reasoning.encrypted_content")),
    prompt_cache_key=NAME,
    store=core_schema.literal_schema([False]),
)


class OpenAIResponses(WireFormat):
    """Responses, which have a field neither for a seed nor for switching or limiting thinking."""

    name = "openai"
    aliases = ("openai-responses",)
    path = "responses"
    address = "https://api.openai.com/v1"
    usage_within = "response"
    request = _REQUEST
    image_details = True
    limits = ("max_output_tokens",)

    def is_answer(self, document: JsonObject) -> bool:
        """Return whether there is a list of outputs that the provider didn't break off."""
        return isinstance(document.get("output"), list) and document.get("status") not in ("failed", "cancelled")

    def sampling(
        self, seed: int | None, reasoning_effort: str | None, thinking: bool | None, thinking_budget: int | None
    ) -> Settings:
        """Set the effort alone."""
        return {"openai_reasoning_effort": reasoning_effort}
