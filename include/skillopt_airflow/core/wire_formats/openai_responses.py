"""OpenAI's responses API."""

from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.core.wire_formats import wire_format as shape
from skillopt_airflow.core.wire_formats.wire_format import (
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
        "input_text output_text": {"text!": TEXT},
        "refusal": {"refusal": TEXT},
        "input_image": {"image_url!": shape.IMAGE_URL, "detail": NAME},
    }
)
_CONTENT = either(many(_PART), TEXT)
_ROLE = one_of("system", "developer", "user", "assistant")
_CALL = {"id call_id": TEXT, "namespace name status": NAME}
_ITEM = by_type(
    {
        "message": {"id": TEXT, "role": _ROLE, "content": _CONTENT, "status phase": NAME},
        "function_call": {**_CALL, "arguments": TEXT},
        "custom_tool_call": {**_CALL, "input": TEXT},
        "function_call_output custom_tool_call_output": {"id call_id": TEXT, "output": _CONTENT, "status": NAME},
        "reasoning": {
            "id encrypted_content": TEXT,
            "summary": many(by_type({"summary_text": {"text!": TEXT}})),
            "content": many(by_type({"reasoning_text": {"text!": TEXT}})),
            "status": NAME,
        },
    }
)
_GRAMMAR = {"syntax": one_of("lark", "regex"), "definition": TEXT}
_FORMAT = by_type({"text": {}, "grammar": _GRAMMAR})
_TOOLS = {"function": shape.FUNCTION, "custom": {"name!": NAME, "description": TEXT, "format": _FORMAT}}
_SPACE = {"name!": NAME, "description": TEXT, "tools": shape.client_tools(by_type(_TOOLS), *_TOOLS)}
_REQUEST = {
    **shape.ANSWERING,
    # The type of a message may be missing.
    "input": either(many(either(_ITEM, fields({"role!": _ROLE, "content!": _CONTENT}))), TEXT),
    "instructions": TEXT,
    "tools": shape.client_tools(by_type({**_TOOLS, "namespace": _SPACE}), *_TOOLS, "namespace"),
    "tool_choice": either(by_type({"function custom": {"name": NAME}}), shape.CHOICE),
    "max_output_tokens": shape.COUNT,
    "reasoning": fields({"effort summary": NAME}),
    "text": fields(
        {"verbosity": NAME, "format": by_type({"text json_object": {}, "json_schema": shape.OUTPUT_SCHEMA})}
    ),
    "include": many(one_of("reasoning.encrypted_content")),
    "prompt_cache_key": NAME,
    "store": one_of(False),
}


class OpenAIResponses(WireFormat):
    """Responses, which have no field to switch or limit thinking."""

    name = "openai"
    aliases = ("openai-responses",)
    path = "responses"
    address = "https://api.openai.com/v1"
    usage_within = "response"
    request = fields(_REQUEST)
    limits = ("max_output_tokens",)

    def is_answer(self, document: JsonObject) -> bool:
        return isinstance(document.get("output"), list) and document.get("status") not in ("failed", "cancelled")

    def sampling(self, reasoning_effort: str | None, thinking: bool | None, thinking_budget: int | None) -> Settings:
        return {"openai_reasoning_effort": reasoning_effort}
