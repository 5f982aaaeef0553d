"""Text from outside without half surrogate pairs, which UTF-8 and Arrow refuse, and NUL, which PostgreSQL refuses."""

import re
from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator, JsonValue

_REFUSED = re.compile("[\0\ud800-\udfff]")


def storable(text: str) -> str:
    """Return the text with U+FFFD for each half of a surrogate pair and each NUL; two halves in a row are joined."""
    if _REFUSED.search(text) is None:
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")


Text = Annotated[str, AfterValidator(storable)]
"""Text from outside, such as a reply or an error of a server."""


def storable_json(value: JsonValue) -> JsonValue:
    """Return the value with `storable` applied to all its strings, keys included."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, list):
        return [storable_json(entry) for entry in value]
    return {storable(key): storable_json(one) for key, one in value.items()} if isinstance(value, dict) else value


def clean_parts(parts: Iterable[object]) -> None:
    """Make the texts and tool arguments in the parts of pydantic-ai's response storable, in place."""
    for part in parts:
        for name in ("content", "args"):
            value = getattr(part, name, None)
            if isinstance(value, str | dict):
                setattr(part, name, storable_json(value))
