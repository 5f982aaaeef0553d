"""The pictures among the parts of a message, in each of the wire formats."""

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from skillopt_airflow.core.errors import ModelError
from skillopt_airflow.core.pictures import mark, marked

PLACE = "\N{OBJECT REPLACEMENT CHARACTER}"
"""What stands for a picture in the text that is read from a request."""
_DATA_URL = re.compile(r"data:[\w/+.-]+;base64,(?P<content>.*)", re.DOTALL | re.IGNORECASE)


def picture_of(part: Mapping[str, Any]) -> bytes | None:
    """Return the file that a part holds; None if it is no picture.

    Raises:
        ModelError: the picture is not within the request, or cannot be decoded.
    """
    kind = part.get("type")
    if kind == "image":
        source = part.get("source")
        return _decoded(str(source.get("data", "")) if isinstance(source, Mapping) else "")
    if kind not in ("image_url", "input_image"):
        return None
    address = part.get("image_url")
    url = _DATA_URL.fullmatch(str(address.get("url") if isinstance(address, Mapping) else address))
    return _decoded(url["content"] if url else "")


def named(text: str) -> str:
    """Return the text with the pictures' marks in their places, as a trajectory has it.

    An agent's text has the marks already, and its pictures stand elsewhere.
    """
    before, *behind = text.split(PLACE)
    if marked(text):
        return "".join((before, *behind))
    return before + "".join(f"{mark(f'picture-{number}.png')}{rest}" for number, rest in enumerate(behind, start=1))


def _decoded(content: str) -> bytes:
    try:
        decoded = base64.b64decode(content, validate=True)
    except binascii.Error:
        decoded = b""
    if not decoded:
        raise ModelError("A picture has to be part of the request, in base64: the stand-in fetches none.")
    return decoded
