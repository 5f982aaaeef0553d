"""Pictures in prompts: texts contain marks, and requests have the pictures in their places.

Stored texts have only the marks, so stored conversations contain no pictures.
"""

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

from skillopt_airflow.core.values.types import FILE_NAME, Item, Message, Value

MEDIA_TYPES: Mapping[bytes, str] = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg"}
"""The formats that every provider accepts, by their first bytes."""
JPEG_SUFFIXES = (".jpg", ".jpeg")
_MARK = re.compile(rf"\[picture: ({FILE_NAME})\]")


class Picture(NamedTuple):
    """A picture in the place of its mark, in one of MEDIA_TYPES."""

    content: bytes

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
    """The size of a picture in pixels, for a model that doesn't see it."""

    name: str
    """Name of the item's file, as in the mark."""
    width: int
    height: int


Part = str | Picture
Pictures = Mapping[str, bytes]
"""The contents of an item's pictures by file name."""
NO_PICTURES: Pictures = MappingProxyType({})
PictureSizes = Mapping[str, Sequence[PictureSize]]
"""Sizes of the items' pictures by item id."""
NO_SIZES: PictureSizes = MappingProxyType({})


def mark(name: str) -> str:
    return f"[picture: {name}]"


def marks_in(text: str) -> list[str]:
    return _MARK.findall(text)


def sizes(item: Item) -> tuple[PictureSize, ...]:
    shown = [(file.name, *file.pixels) for file in item.files if file.pixels is not None]
    return tuple(PictureSize(name=name, width=width, height=height) for name, width, height in shown)


def picture_suffix(path: str) -> str:
    """Return the file extension under which a picture is stored: all but JPEGs become PNGs."""
    return ".jpg" if path.lower().endswith(JPEG_SUFFIXES) else ".png"


def is_picture(content: bytes) -> bool:
    return content.startswith(tuple(MEDIA_TYPES))


def parts(text: str, pictures: Pictures) -> list[Part]:
    """Return a text with the pictures in the places of their marks; marks without a picture remain text."""
    found: list[Part] = []
    end = 0
    for match in _MARK.finditer(text):
        if match[1] in pictures:
            found += [text[end : match.start()], Picture(pictures[match[1]])]
            end = match.end()
    return [part for part in (*found, text[end:]) if isinstance(part, Picture) or part.strip()] if found else [text]


def message_parts(messages: Sequence[Message], pictures: Pictures) -> Iterator[tuple[Message, list[Part]]]:
    """Yield the messages with their parts; after the first reply marks stay text, since they may be the target's."""
    opening = True
    for message in messages:
        opening = opening and message.role in ("system", "user")
        yield message, parts(message.content, pictures) if opening and message.role == "user" else [message.content]
