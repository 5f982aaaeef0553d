"""Taking the answer from the JSON of a response."""

import json
import re
from collections.abc import Callable, Iterator
from typing import ClassVar, Literal

from pydantic import Field, JsonValue

from skillopt_airflow.core.hidden_text import storable
from skillopt_airflow.core.scoring.extraction import Extraction, is_echo

_FENCED = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
_OPENING = re.compile(r"""\{\s*["}]|\[\s*[\]\[{"\dtfnNI-]""")
"""The beginning of an object or a list; most brackets of prose, code and LaTeX are none."""
MAX_WASTED = 1_000_000
"""Characters that are read in vain, for brackets that begin no value, before the search ends."""
LEAST_WASTED = 10
"""Characters that a bracket in vain counts for at least."""
CUT_CHARS = 4096
_STEP = r"(?:[^.\[\]]+|\[\d+\])"


class JsonAnswer(Extraction):
    """The value at a path of the last JSON value in a response, in a fenced block or anywhere.

    A later value does not replace it if it is an empty object or list, has nothing at the path, or echoes the
    instruction, such as `{"answer": "..."}`.
    """

    last_line_instead: ClassVar[bool] = False

    from_: Literal["json"] = Field(default="json", alias="from")
    path: str = Field(default="", pattern=rf"^(?:\$?\.?{_STEP}(?:\.?{_STEP})*)?$")
    """Keys and positions, such as `result.items[0].name`; empty for the whole value."""

    def find(self, response: str) -> str | None:
        """Return a text as it is, and any other value as JSON."""
        found = [value for value in json_values(response, self._is_answer) if self._leads_somewhere(value)]
        return as_text(self._inside(found[-1])) if found else None

    def _is_answer(self, value: JsonValue) -> bool:
        if value in ({}, []) or not self._leads_somewhere(value):
            return False
        inside = self._inside(value)
        return not (isinstance(inside, str) and inside and is_echo(inside))

    def _leads_somewhere(self, value: JsonValue) -> bool:
        try:
            self._inside(value)
        except (KeyError, IndexError):
            return False
        return True

    def _inside(self, value: JsonValue) -> JsonValue:
        for key, position in re.findall(r"([^.\[\]]+)|\[(\d+)\]", self.path.removeprefix("$")):
            if key and isinstance(value, dict):
                value = value[key]
            elif position and isinstance(value, list):
                value = value[int(position)]
            else:
                raise KeyError(key or position)
        return value


def json_values(response: str, is_answer: Callable[[JsonValue], bool] = bool) -> list[JsonValue]:
    """Return the JSON values of a response, in order: of its fenced blocks if one holds JSON, else of all of it.

    Args:
        response: all of it.
        is_answer: those for which it is false are left out, unless it is false for all.
    """
    fenced = [value for block in _FENCED.findall(response) for value in _values(block)]
    found = [value for value in fenced if is_answer(value)]
    if not found:
        values = list(_values(response))
        found = [value for value in values if is_answer(value)] or fenced or values
    return found


def parsed(text: str) -> JsonValue:
    """Return the value of a JSON text.

    Raises:
        ValueError: it is no JSON, or too deeply nested.
    """
    try:
        value: JsonValue = json.loads(text, parse_constant=_null)
    except RecursionError as error:
        raise ValueError("too deeply nested") from error
    return value


def as_text(value: JsonValue) -> str:
    """Return a text as it is, and any other value as JSON."""
    # An escape such as \ud800 stands for half a character.
    return storable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _values(text: str) -> Iterator[JsonValue]:
    """Yield the value that a text is, else the objects and lists in it that are part of no other."""
    try:
        yield parsed(text)
        return
    except ValueError:
        pass
    decoder = json.JSONDecoder(parse_constant=_null)
    place = wasted = 0
    while wasted < MAX_WASTED and (opening := _OPENING.search(text, place)):
        if opening.start() > CUT_CHARS:
            # An error counts the lines from the beginning of the text.
            text, place = text[opening.start() :], 0
            continue
        try:
            value, place = decoder.raw_decode(text, opening.start())
        except json.JSONDecodeError as error:
            place = opening.start() + 1
            wasted += error.pos - opening.start() + LEAST_WASTED
        except (ValueError, RecursionError):
            # A number of thousands of digits, or a thousand brackets: what is inside of them would not be better.
            return
        else:
            yield value


def _null(constant: str) -> None:
    """Read NaN and Infinity, which are no JSON, as null."""
