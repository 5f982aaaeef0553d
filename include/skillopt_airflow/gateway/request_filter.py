"""The filter of a sandbox's requests: a model may answer, and the provider does nothing else on its behalf."""

import json
import re
from collections.abc import Iterator

from pydantic import JsonValue

from skillopt_airflow.core.types import JsonObject
from skillopt_airflow.core.wire_formats.wire_format import WireFormat

KEPT_BACK = frozenset(
    {
        *("models", "fallbacks", "route", "provider"),
        *("plugins", "mcp_servers", "background", "container"),
        *("web_search_options", "enable_search", "search_options", "search_parameters"),
        # Azure asks an index at an address for what the answer is about.
        *("data_sources", "dataSources"),
        *("service_tier", "speed"),
    }
)
"""Fields by which a request names other models, has the provider act for it beyond the answer, or costs more."""
CONTENTS = frozenset({"file", "file_data", "file_id", "data", "image", "images", "audio", "video"})
"""Fields of a message that hold contents, in whose place some providers take an address; any `_url` is one, too."""
SCHEME = re.compile(r"[^:/]*:[\x00-\x20]*/[\x00-\x20]*/")
"""How an address begins, also with characters in it that clients pass over, and neither Base64 nor a `data:` URL."""
NO_PARTS = ("tools", "metadata", "response_format", "text")
"""Fields of a request that hold no parts of messages."""
LOCAL_TOOLS = ("function", "custom", "namespace", "local_shell", "shell", "apply_patch")
"""Kinds of tools that the client executes itself. The kinds of Anthropic's carry a date."""
LOCAL_TOOL_PREFIXES = ("bash_", "text_editor_", "memory_", "computer_")
MAX_PARTS = 500_000
"""More than the largest context of a model holds, and few enough that a request takes no great memory as objects."""


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


def contained(request: JsonObject, wire_format: WireFormat) -> bytes:
    """Return the request as it may leave, without what makes the provider do more than answer.

    It is written anew, so that the provider reads the same fields as this module, also where a name is there twice.
    Server-side tools (web search, code interpreters, MCP) are taken out, so that a client which offers them by default
    runs on without them.

    Raises:
        NotUsable: the provider is to fetch something from an address, or the document is nested too deeply.
    """
    try:
        kept = {name: _with_local_tools(name, value) for name, value in request.items() if name not in KEPT_BACK}
    except RecursionError:
        raise NotUsable("nested too deeply") from None
    if not kept.get("tools", True):
        # Some servers refuse an empty list, or a choice among no tools.
        kept = {name: value for name, value in kept.items() if name not in ("tools", "tool_choice")}
    kept = wire_format.prepared(kept)
    if _fetches(kept):
        raise NotUsable("it has the provider fetch an address; contents go along as data")
    try:
        return json.dumps(kept).encode()
    except RecursionError:
        raise NotUsable("nested too deeply") from None


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _with_local_tools(name: str, value: JsonValue) -> JsonValue:
    """Return a field's value without tools of the provider, which messages may bring along as well as a request.

    Raises:
        NotUsable: a block of a message adds one.
    """
    if isinstance(value, list):
        kept = [one for one in value if _is_local(one)] if name == "tools" else value
        return [_with_local_tools("", one) for one in kept]
    if not isinstance(value, dict):
        return value
    if value.get("type") == "tool_definition" and not _is_local(value.get("definition")):
        raise NotUsable("a message adds a tool that is not the client's own")
    # What a tool is called with, or described by, is data.
    data = {"tool_use": "input", "function": "parameters"}.get(str(value.get("type")))
    return {field: one if field == data else _with_local_tools(field, one) for field, one in value.items()}


def _is_local(tool: object) -> bool:
    if not isinstance(tool, dict):
        return False
    kind = tool.get("type", "custom")
    if kind == "shell" and not _is_here(tool.get("environment")):
        return False
    return isinstance(kind, str) and (kind in LOCAL_TOOLS or kind.startswith(LOCAL_TOOL_PREFIXES))


def _is_here(environment: object) -> bool:
    """Return whether a shell's commands run at the client, not in a container of the provider."""
    return environment is None or (isinstance(environment, dict) and environment.get("type") == "local")


def _fetches(document: JsonObject) -> bool:
    """Return whether a part of a message is an address; the arguments and descriptions of tools do not count."""
    open_parts = [(name, value) for name, value in document.items() if name not in NO_PARTS]
    while open_parts:
        name, part = open_parts.pop()
        if isinstance(part, list):
            open_parts += [(name, one) for one in part]
        elif isinstance(part, dict):
            open_parts += _fields(name, part)
        elif isinstance(part, str) and _is_address(name, part):
            return True
    return False


def _fields(name: str, part: JsonObject) -> Iterator[tuple[str, JsonValue]]:
    """Yield the fields of a part that is called so itself; `url` has another name where it stands for contents."""
    # Any part may claim to be a tool call, and a server may not care: everything else in it is searched.
    data = {"tool_use": "input", "exec": "env"}.get(str(part.get("type")))
    if name == "source" and part.get("type") == "text":
        data = "data"
    refers = part.get("type") == "url" or name in CONTENTS or name == "source" or name.endswith("_url")
    for field, value in part.items():
        if field != data:
            yield ("content_url" if refers and field == "url" else field), value


def _is_address(name: str, text: str) -> bool:
    if name.endswith("_url"):
        return not text.startswith("data:")
    return name in CONTENTS and SCHEME.match(text) is not None
