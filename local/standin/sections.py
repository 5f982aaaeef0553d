"""The tagged sections of an optimizer's request."""

import json
import re
from typing import TypeVar

from pydantic import TypeAdapter, ValidationError

from skillopt_airflow.core.errors import ModelError

Parsed = TypeVar("Parsed")


class Sections:
    """A request's sections, read from the front.

    Raw text may hold tags itself, so it ends at the last closing tag of its name; JSON has none. The memory, which
    every stage may get and which comes last, is in `meta_skill`.

    The methods raise ModelError on a section that is missing or malformed.
    """

    def __init__(self, prompt: str) -> None:
        self._behind = ""
        self._rest, self.meta_skill = _without_memory(prompt)

    def raw(self, tag: str) -> str:
        """Plain text; what is asked for next stands behind it."""
        start, end = self._rest.find(f"<{tag}>"), self._rest.rfind(f"</{tag}>")
        if start < 0 or end < start:
            raise ModelError(f"The request has no <{tag}> section{self._behind}.")
        text = self._rest[start + len(tag) + 2 : end].strip("\n")
        self._rest, self._behind = self._rest[end:], f" after its <{tag}>"
        return text

    def word(self, tag: str) -> str:
        """A short text without tags."""
        match = re.search(rf"<{tag}>(.*?)</{tag}>", self._rest, re.DOTALL)
        if match is None:
            raise ModelError(f"The request has no <{tag}> section{self._behind}.")
        return match[1].strip()

    def json(self, tag: str, section_type: type[Parsed]) -> Parsed:
        """A value of the type; its models ignore keys that they do not know."""
        try:
            return TypeAdapter(section_type).validate_python(json.loads(self.word(tag)))
        except (json.JSONDecodeError, ValidationError) as error:
            raise ModelError(f"The request's <{tag}> section cannot be read: {error}") from error

    def limit(self, tag: str) -> int | None:
        """A number of at least 0, or None for `unlimited`."""
        word = self.word(tag)
        if word == "unlimited":
            return None
        if not re.fullmatch(r"[0-9]{1,9}", word):
            raise ModelError(f"The request's <{tag}> section cannot be read: expected a number or unlimited")
        return int(word)


def _without_memory(prompt: str) -> tuple[str, str]:
    """What stands before the memory, and the memory; it is there if its tag is the last that closes."""
    end = prompt.rfind("</")
    start = prompt.rfind("<meta_skill>", 0, max(end, 0))
    if start < 0 or not prompt.startswith("</meta_skill>", end):
        return prompt, ""
    return prompt[:start], prompt[start + len("<meta_skill>") : end].strip()
