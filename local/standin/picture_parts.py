"""The pictures among the parts of a message, in each of the wire formats."""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from skillopt_airflow.core.errors import ModelError

_MARK = re.compile(r"\[picture: [^\]\s]+\]")
PLACE = "\N{OBJECT REPLACEMENT CHARACTER}"
"""What stands for a picture in the text that is read from a request."""
_DATA_URL = re.compile(r"data:[\w/+.-]+;base64,(?P<content>.*)", re.DOTALL | re.IGNORECASE)


def picture_of(part: Mapping[str, Any]) -> bytes | None:
    """Return the file that a part holds; None if it is no picture."""
    kind = part.get("type")
    if kind == "image":
        source = part.get("source")
        return _decoded(str(source.get("data", "")) if isinstance(source, Mapping) else "")
    if kind not in ("image_url", "input_image"):
        return None
    address = part.get("image_url")
    url = _DATA_URL.fullmatch(str(address.get("url") if isinstance(address, Mapping) else address))
    return _decoded(url["content"] if url else "")


def without_pictures(text: str) -> str:
    return _MARK.sub("", text.replace(PLACE, ""))


def _decoded(content: str) -> bytes:
    try:
        decoded = base64.b64decode(content, validate=True)
    except binascii.Error:
        decoded = b""
    if not decoded:
        raise ModelError("A picture has to be part of the request, in base64: the stand-in fetches none.")
    return decoded
