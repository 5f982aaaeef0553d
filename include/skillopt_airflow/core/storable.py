"""Text that UTF-8, Arrow and PostgreSQL can hold, made of text from outside.

A model, a file or a server can send half a surrogate pair as a JSON escape, which UTF-8 and Arrow refuse, or a NUL
character, which PostgreSQL refuses.
"""

import re
from collections.abc import Iterable
from typing import Annotated

from pydantic import AfterValidator, JsonValue

_REFUSED = re.compile("[\0\ud800-\udfff]")
REPLACEMENT = "\ufffd"


def storable(text: str) -> str:
    """Return the text with U+FFFD for each half of a surrogate pair and each NUL; two halves in a row are joined."""
    if _REFUSED.search(text) is None:
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", REPLACEMENT)


Text = Annotated[str, AfterValidator(storable)]
"""Text from outside, such as a reply or an error of a server."""


def storable_json(value: JsonValue) -> JsonValue:
    """Return the value with `storable` applied to all its strings, keys included."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, list):
        return [storable_json(entry) for entry in value]
    if isinstance(value, dict):
        return {storable(key): storable_json(entry) for key, entry in value.items()}
    return value


def clean_parts(parts: Iterable[object]) -> None:
    """Make the texts and tool arguments in the parts of pydantic-ai's response storable, in place."""
    for part in parts:
        for name in ("content", "args"):
            value = getattr(part, name, None)
            if isinstance(value, str | dict):
                setattr(part, name, storable_json(value))
