"""Requests and replies of the stand-in, independent of the wire format."""

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from skillopt_airflow.core.errors import ModelError

_MARK = re.compile(r"\[picture: [^\]\s]+\]")
PICTURE_MARK = "\N{OBJECT REPLACEMENT CHARACTER}"
"""Placeholder for a picture in a request's text."""
_DATA_URL = re.compile(r"data:[\w/+.-]+;base64,(?P<content>.*)", re.DOTALL | re.IGNORECASE)


def picture_of(part: Mapping[str, Any]) -> bytes | None:
    """Return the picture in a part of a message, or None."""
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
    return _MARK.sub("", text.replace(PICTURE_MARK, ""))


def _decoded(content: str) -> bytes:
    try:
        decoded = base64.b64decode(content, validate=True)
    except binascii.Error:
        decoded = b""
    if not decoded:
        raise ModelError("Picture without base64 content: the stand-in doesn't fetch URLs.")
    return decoded


Role = Literal["user", "assistant", "tool"]


@dataclass(frozen=True)
class Call:
    """A tool call; the arguments are a JSON object as a string."""

    name: str
    arguments: str


@dataclass(frozen=True)
class Turn:
    """A message; for a tool, the result of its call."""

    role: Role
    text: str = ""
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True)
class Reply:
    """The stand-in's next turn: text or tool calls."""

    text: str = ""
    calls: tuple[Call, ...] = ()

    @property
    def words(self) -> int:
        return max(1, _words(self.text) + sum(1 + _words(call.arguments) for call in self.calls))


@dataclass(frozen=True)
class Conversation:
    """A request; `tools` has the names of the client's tools."""

    model: str
    system: str
    turns: tuple[Turn, ...]
    tools: tuple[str, ...] = ()
    pictures: tuple[bytes, ...] = ()
    """In the order of their placeholders in the turns."""

    @property
    def user_text(self) -> str:
        return "\n\n".join(turn.text for turn in self.turns if turn.role == "user")

    @property
    def words(self) -> int:
        """Number of words, which count as tokens."""
        return _words(self.system) + sum(
            _words(turn.text) + sum(_words(call.arguments) for call in turn.calls) for turn in self.turns
        )

    def identity(self, reply: Reply, part: int = 0) -> str:
        """Return an id for a part of the reply, reproducible and different in each turn."""
        calls = [[call.name, call.arguments] for call in reply.calls]
        text = json.dumps([len(self.turns), part, reply.text, calls])
        return hashlib.sha256(text.encode()).hexdigest()[:24]


Answering = Callable[[Conversation], Reply]
"""Chooses the next turn of a conversation."""


def objects(request: Mapping[str, Any], field: str, has: str) -> list[dict[str, Any]]:
    values = request.get(field)
    if not isinstance(values, list) or not all(isinstance(one, dict) for one in values):
        raise ModelError(f"{field}: expected a list of objects with {has}")
    return values


def text_of(content: object, pictures: list[bytes] | None = None) -> str:
    """Return the text of a message's content, a string or a list of parts.

    If `pictures` is a list, append the pictures to it and put PICTURE_MARK into the text for each.
    """
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    texts = []
    for part in content:
        if not isinstance(part, dict):
            continue
        picture = picture_of(part) if pictures is not None else None
        if pictures is not None and picture is not None:
            pictures.append(picture)
        texts.append(str(part.get("text", "")) if picture is None else PICTURE_MARK)
    return "".join(texts)


def _words(text: str) -> int:
    return len(text.split())
