"""The shapes by which a wire format lists the parts of a request that may leave a sandbox.

A field without a shape is dropped, wherever it is. A field with another type or value than its shape is refused.
"""

from collections.abc import Mapping
from functools import partial

from pydantic import JsonValue
from pydantic_core import core_schema

Shape = core_schema.CoreSchema
Named = Mapping[str, Shape]
"""Shapes by the names of their fields. Names with the same shape may share a key, and one with `!` is required."""
TEXT, FLAG, NUMBER = core_schema.str_schema(), core_schema.bool_schema(), core_schema.float_schema(allow_inf_nan=False)
NAME = core_schema.str_schema(max_length=256)
COUNT, INTEGER = core_schema.int_schema(ge=1), core_schema.int_schema()
many = partial(core_schema.list_schema, fail_fast=True)
OBJECT = core_schema.dict_schema()
"""Data of the client's own: the arguments or the JSON schema of a tool."""


def one_of(*words: str | bool) -> Shape:
    """Return the shape of one of these words."""
    return core_schema.literal_schema(list(words))


def fields(named: Named) -> Shape:
    """Return the shape of an object with these fields. Those that aren't required may be missing or null."""
    optional, field = core_schema.nullable_schema, core_schema.typed_dict_field
    shapes = {name: shape for names, shape in named.items() for name in names.split()}
    return core_schema.typed_dict_schema(
        {
            name.rstrip("!"): field(shape if name[-1] == "!" else optional(shape), required=name[-1] == "!")
            for name, shape in shapes.items()
        },
        extra_behavior="ignore",
    )


def by_type(kinds: Mapping[str, Named]) -> Shape:
    """Return the shape of an object whose field `type` names its kind. Kinds with the same fields may share a key."""
    one_each = {kind: named for names, named in kinds.items() for kind in names.split()}
    return core_schema.tagged_union_schema(
        {kind: fields({"type": one_of(kind), **named}) for kind, named in one_each.items()}, "type"
    )


def either(*shapes: Shape) -> Shape:
    """Return the shape of a value of the first of these shapes that fits."""
    return core_schema.union_schema([(shape, "option") for shape in shapes], mode="left_to_right")


def client_tools(tool: Shape, *kinds: str | None) -> Shape:
    """Return the shape of a list of tools that drops those of other types, since the provider would run them.

    Clients such as Codex offer some by default, so they are no reason to refuse a request.
    """

    def own(tools: JsonValue) -> JsonValue:
        if not isinstance(tools, list):
            return tools
        return [one for one in tools if isinstance(one, dict) and one.get("type") in kinds]

    return core_schema.no_info_before_validator_function(own, many(tool))


def contents(pattern: str) -> Shape:
    """Return the shape of encoded contents, in whose place some providers would fetch a URL."""
    refused = "Input should be contents, not a URL"
    return core_schema.custom_error_schema(core_schema.str_schema(pattern=pattern), "url", custom_error_message=refused)


BASE64 = contents(r"^[A-Za-z0-9+/=]*$")
IMAGE_URL = contents(r"^data:image/[a-z0-9.+-]+;base64,[A-Za-z0-9+/=]*$")
FUNCTION: Named = {"name!": NAME, "description": TEXT, "parameters": OBJECT, "strict": FLAG}
OUTPUT_SCHEMA: Named = {"name": NAME, "description": TEXT, "schema": OBJECT, "strict": FLAG}
CHOICE = one_of("none", "auto", "required")
ANSWERING: Named = {"model!": NAME, "stream parallel_tool_calls": FLAG, "temperature top_p": NUMBER}
"""The fields that several formats share."""
