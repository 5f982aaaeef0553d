"""The filter of a sandbox's requests: a model may answer, and the provider does nothing else on its behalf."""

import json
import re
from functools import cache

from pydantic import ValidationError
from pydantic_core import SchemaValidator, to_json

from skillopt_airflow.core.values.documents import flaws
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.core.wire_formats.wire_format import WireFormat

MAX_PARTS = 500_000
"""More than the largest context of a model holds, and few enough that a request takes no great memory as objects."""
DEFAULT_LIMIT = 16_384
"""Tokens of an answer, as `model.max_tokens` has it."""
REMOTE_SCHEMA = re.compile(rb'"\$(?:r|dynamicR)ef":"(?!#)')


class NotUsable(ValueError):
    """A text does not fit the wire format; the message says why, without quoting it."""


def parsed(text: bytes | bytearray | str) -> JsonObject:
    """Return the JSON object that a text holds.

    Raises:
        NotUsable: it holds something else, or what Python accepts and JSON does not.
    """
    try:
        document = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise NotUsable(f"no JSON ({type(error).__name__})") from None
    if not isinstance(document, dict):
        raise NotUsable("no JSON object")
    return document


def has_many_parts(text: bytes | bytearray) -> bool:
    """Return whether a JSON text may hold more than MAX_PARTS lists, objects and values, without parsing it.

    What a string holds is counted too.
    """
    return sum(text.count(mark) for mark in (b"[", b"{", b",")) > MAX_PARTS


def contained(request: JsonObject, wire_format: WireFormat, limit: int = DEFAULT_LIMIT) -> bytes:
    """Return the request as it may leave: the fields of its wire format that make a model answer, and no others.

    It is written again, so that the provider reads the same fields as this module, also where a name is there twice.

    Args:
        wire_format: the format with the list of those fields.
        limit: most tokens of an answer. A larger limit of the request is lowered to it.

    Raises:
        NotUsable: a field has another type or value than the list allows, or text that isn't Unicode.
    """
    try:
        kept: JsonObject = _validator(wire_format).validate_python(request, strict=True)
        if not kept.get("tools", True):
            # Some servers refuse an empty list, or a choice among no tools.
            kept = {name: value for name, value in kept.items() if name not in ("tools", "tool_choice")}
        limits = {name: min(value, limit) for name in wire_format.limits if isinstance(value := kept.get(name), int)}
        text = to_json(wire_format.prepared(kept | (limits if limits else {wire_format.limits[-1]: limit})))
    except ValidationError as error:
        raise NotUsable(f"{flaws(error, 1):.300}") from None
    except (ValueError, RecursionError) as error:
        raise NotUsable(f"it cannot be written ({type(error).__name__})") from None
    if REMOTE_SCHEMA.search(text):
        raise NotUsable("a JSON schema refers to another document, which a server may fetch. Write it into the schema")
    return text


@cache
def _validator(wire_format: WireFormat) -> SchemaValidator:
    return SchemaValidator(wire_format.request)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
