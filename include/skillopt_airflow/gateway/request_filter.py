"""The filter of a sandbox's requests: allows a model's answer and no other service of the provider."""

import json
import re
from functools import cache

from pydantic import ValidationError
from pydantic_core import SchemaValidator, to_json

from skillopt_airflow.core.values.documents import flaws
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.core.wire_formats.wire_format import WireFormat

MAX_PARTS = 500_000
"""Exceeds the largest context of a model, and limits the memory of a parsed request."""
DEFAULT_LIMIT = 16_384
"""Tokens of an answer; the default of `model.max_tokens`."""
REMOTE_SCHEMA = re.compile(rb'"\$(?:r|dynamicR)ef":"(?!#)')


class FormatError(ValueError):
    """A document doesn't fit the wire format. The message gives the reason without quoting the document."""


def parse_object(text: bytes | bytearray | str) -> JsonObject:
    """Return the JSON object in a text; raises FormatError, also for NaN and Infinity."""
    try:
        document = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"no JSON ({type(error).__name__})") from None
    if not isinstance(document, dict):
        raise FormatError("no JSON object")
    return document


def has_many_parts(text: bytes | bytearray) -> bool:
    """Return whether a JSON text may have more than MAX_PARTS parts. Counts characters, also those in strings."""
    return sum(text.count(mark) for mark in (b"[", b"{", b",")) > MAX_PARTS


def filter_request(request: JsonObject, wire_format: WireFormat, limit: int = DEFAULT_LIMIT) -> bytes:
    """Return the request with only the allowed fields of its wire format.

    It is serialized again, so that the provider and this module read the same fields, even if a name occurs twice.
    Token limits above `limit` are lowered. Raises FormatError if a field isn't allowed, or text isn't valid Unicode.
    """
    try:
        allowed: JsonObject = _validator(wire_format).validate_python(request, strict=True)
        if not allowed.get("tools", True):
            # Some servers refuse an empty list of tools, or a tool choice without tools.
            allowed = {name: value for name, value in allowed.items() if name not in ("tools", "tool_choice")}
        limits = {name: min(value, limit) for name in wire_format.limits if isinstance(value := allowed.get(name), int)}
        text = to_json(wire_format.prepared(allowed | (limits if limits else {wire_format.limits[-1]: limit})))
    except ValidationError as error:
        raise FormatError(f"{flaws(error, 1):.300}") from None
    except (ValueError, RecursionError) as error:
        raise FormatError(f"it cannot be written ({type(error).__name__})") from None
    if REMOTE_SCHEMA.search(text):
        raise FormatError(
            "a JSON schema refers to another document, which a server may fetch. Include it in the schema"
        )
    return text


@cache
def _validator(wire_format: WireFormat) -> SchemaValidator:
    return SchemaValidator(wire_format.request)


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
