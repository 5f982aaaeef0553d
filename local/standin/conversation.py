"""A request in any wire format, as what the stand-in needs of it, and what it decides to say."""

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
PLACE = "\N{OBJECT REPLACEMENT CHARACTER}"
"""What stands for a picture in the text that is read from a request."""
_DATA_URL = re.compile(r"data:[\w/+.-]+;base64,(?P<content>.*)", re.DOTALL | re.IGNORECASE)


def picture_of(part: Mapping[str, Any]) -> bytes | None:
    """Return the picture in a part of a message; None if it holds something else."""
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


Role = Literal["user", "assistant", "tool"]


@dataclass(frozen=True)
class Call:
    """A call of a tool that the client offers; the arguments are a JSON object as text."""

    name: str
    arguments: str


@dataclass(frozen=True)
class Turn:
    """One contribution to a conversation; that of a tool is what its call gave."""

    role: Role
    text: str = ""
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True)
class Reply:
    """The stand-in's next turn: a text, or calls of tools."""

    text: str = ""
    calls: tuple[Call, ...] = ()

    @property
    def words(self) -> int:
        return max(1, _words(self.text) + sum(1 + _words(call.arguments) for call in self.calls))


@dataclass(frozen=True)
class Conversation:
    """A client's request: instructions, turns, and the names of the tools that it offers."""

    model: str
    system: str
    turns: tuple[Turn, ...]
    tools: tuple[str, ...] = ()
    pictures: tuple[bytes, ...] = ()
    """Every picture, in the order of their places in the turns' texts."""

    @property
    def user_text(self) -> str:
        return "\n\n".join(turn.text for turn in self.turns if turn.role == "user")

    @property
    def words(self) -> int:
        """Return what counts as the tokens of the request."""
        return _words(self.system) + sum(
            _words(turn.text) + sum(_words(call.arguments) for call in turn.calls) for turn in self.turns
        )

    def identity(self, reply: Reply, part: int = 0) -> str:
        """Return hex digits that name a part of the reply: the same for the same request, others at the next turn."""
        calls = [[call.name, call.arguments] for call in reply.calls]
        text = json.dumps([len(self.turns), part, reply.text, calls])
        return hashlib.sha256(text.encode()).hexdigest()[:24]


Answering = Callable[[Conversation], Reply]
"""Decides the next turn of a conversation."""


def objects(request: Mapping[str, Any], field: str, has: str) -> list[dict[str, Any]]:
    """Return a field that must be a list of objects."""
    found = request.get(field)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ModelError(f"{field}: expected a list of objects with {has}")
    return found


def text_of(content: object, pictures: list[bytes] | None = None) -> str:
    """Return the text of a message's content: a string, or the parts of a list that have one.

    Where there is a list for pictures, those of the content are added to it, and PLACE stands for each in the text.
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
        texts.append(str(part.get("text", "")) if picture is None else PLACE)
    return "".join(texts)


def _words(text: str) -> int:
    return len(text.split())
