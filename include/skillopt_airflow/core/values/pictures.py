"""Pictures among what a target is told: a mark in the text says where one stands, the request has it there.

Stored texts have the marks alone, so no conversation ever holds a picture.
"""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from skillopt_airflow.core.values.types import FILE_NAME, Item, Message, Value

MEDIA_TYPES: Mapping[bytes, str] = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}
"""The formats that every provider takes, by their first bytes."""
JPEG_SUFFIXES = (".jpg", ".jpeg")
_MARK = re.compile(rf"\[picture: ({FILE_NAME})\]")


class Picture(NamedTuple):
    """A picture in the place of its mark."""

    content: bytes
    """A file in one of MEDIA_TYPES."""

    @property
    def media_type(self) -> str:
        return next(kind for start, kind in MEDIA_TYPES.items() if self.content.startswith(start))

    @property
    def base64(self) -> str:
        return base64.b64encode(self.content).decode()

    @property
    def data_url(self) -> str:
        return f"data:{self.media_type};base64,{self.base64}"


class PictureSize(Value):
    """The name and the size of a picture, for somebody who is not shown it."""

    name: str
    """Of the item's file, as its mark has it."""
    width: int
    """In pixels, like the height."""
    height: int


Part = str | Picture
Pictures = Mapping[str, bytes]
"""The contents of an item's pictures, by the names of its files."""
NO_PICTURES: Pictures = MappingProxyType({})


PictureSizes = Mapping[str, Sequence[PictureSize]]
"""Sizes of the pictures that items have, by the ids of these."""
NO_SIZES: PictureSizes = MappingProxyType({})


def mark(name: str) -> str:
    """Return what stands in a text for the picture that is the item's file of this name."""
    return f"[picture: {name}]"


def marked(text: str) -> list[str]:
    return _MARK.findall(text)


def sizes(item: Item) -> tuple[PictureSize, ...]:
    """Return the sizes of an item's stored pictures."""
    return tuple(
        PictureSize(name=file.name, width=file.pixels[0], height=file.pixels[1])
        for file in item.files
        if file.pixels is not None
    )


def picture_suffix(path: str) -> str:
    """Return the ending that a picture is stored under: what is no JPEG becomes a PNG."""
    return ".jpg" if path.lower().endswith(JPEG_SUFFIXES) else ".png"


def is_picture(content: bytes) -> bool:
    return content.startswith(tuple(MEDIA_TYPES))


def parts(text: str, pictures: Pictures) -> list[Part]:
    """Return a text with the pictures in the places of their marks; a mark of no picture stays text."""
    found: list[Part] = []
    end = 0
    for match in _MARK.finditer(text):
        if match[1] in pictures:
            found += [text[end : match.start()], Picture(pictures[match[1]])]
            end = match.end()
    return [part for part in (*found, text[end:]) if isinstance(part, Picture) or part.strip()] if found else [text]


def shown(messages: Sequence[Message], pictures: Pictures) -> Iterator[tuple[Message, list[Part]]]:
    """Yield the messages with their parts.

    Only what the user says before the first reply has pictures: what comes later may quote the target.
    """
    opening = True
    for message in messages:
        opening = opening and message.role in ("system", "user")
        yield message, parts(message.content, pictures) if opening and message.role == "user" else [message.content]
