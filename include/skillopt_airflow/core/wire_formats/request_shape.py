"""The shapes by which a wire format lists the parts of a request that may leave a sandbox.

A field without a shape is dropped, wherever it is. A field with another type or value than its shape is refused.
"""

from collections.abc import Mapping

from pydantic import JsonValue
from pydantic_core import core_schema

Shape = core_schema.CoreSchema
TEXT, FLAG, NUMBER = core_schema.str_schema(), core_schema.bool_schema(), core_schema.float_schema(allow_inf_nan=False)
NAME = core_schema.str_schema(max_length=256)
COUNT = core_schema.int_schema(ge=1, le=10**9)
OBJECT = core_schema.dict_schema()
"""Data of the client's own: the arguments or the JSON schema of a tool."""


def one_of(*words: str) -> Shape:
    """Return the shape of one of these words."""
    return core_schema.literal_schema(list(words))


def fields(*required: str, **named: Shape) -> Shape:
    """Return the shape of an object with these fields. Those that aren't required may be missing or null."""
    return core_schema.typed_dict_schema(
        {
            name: core_schema.typed_dict_field(one, required=True)
            if name in required
            else core_schema.typed_dict_field(core_schema.nullable_schema(one), required=False)
            for name, one in named.items()
        },
        extra_behavior="ignore",
    )


def by_type(**kinds: Mapping[str, Shape]) -> Shape:
    """Return the shape of an object whose field `type` names its kind."""
    return core_schema.tagged_union_schema(
        {kind: fields(type=one_of(kind), **own) for kind, own in kinds.items()}, "type"
    )


def many(one: Shape) -> Shape:
    """Return the shape of a list."""
    return core_schema.list_schema(one, fail_fast=True)


def either(*shapes: Shape) -> Shape:
    """Return the shape of a value of the first of these shapes that fits."""
    return core_schema.union_schema(list(shapes), mode="left_to_right")


def client_tools(tool: Shape, *kinds: str | None) -> Shape:
    """Return the shape of a list of tools that drops those of other types: the provider would run them.

    Clients such as Codex offer some by default, so they are no reason to refuse a request.
    """

    def own(tools: JsonValue) -> JsonValue:
        if not isinstance(tools, list):
            return tools
        return [one for one in tools if isinstance(one, dict) and one.get("type") in kinds]

    return core_schema.no_info_before_validator_function(own, many(tool))


def contents(pattern: str) -> Shape:
    """Return the shape of encoded contents, in whose place some providers would fetch an address."""
    return core_schema.custom_error_schema(
        core_schema.str_schema(pattern=pattern), "address", custom_error_message="Input should be contents, no address"
    )


BASE64 = contents(r"^[A-Za-z0-9+/=]*$")
IMAGE_URL = contents(r"^data:image/[a-z0-9.+-]+;base64,[A-Za-z0-9+/=]*$")
FUNCTION: Mapping[str, Shape] = {"name": NAME, "description": TEXT, "parameters": OBJECT, "strict": FLAG}
ANSWERING: Mapping[str, Shape] = {"model": NAME, "stream": FLAG, "temperature": NUMBER, "top_p": NUMBER}
"""The fields that all formats share."""
