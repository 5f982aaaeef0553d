"""Taking the answer from a response: tags, the last line, a box, a regular expression."""

import re
from collections import deque
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from skillopt_airflow.core.types import Value

_BRACES = re.compile(r"\\boxed\s*\{|\\.|[{}]", re.DOTALL)


class Extraction(Value):
    """Base of the rules; each has its name in YAML as the value of `from`."""

    last_line_instead: ClassVar[bool] = True
    """True if the last line is the answer of a response that has none in the form of the rule."""

    def find(self, response: str) -> str | None:
        """Return the answer, or None if the response has none in the form of the rule."""
        raise NotImplementedError

    def extract(self, response: str) -> str:
        """Return the answer without the blanks around it; empty if there is none."""
        found = self.find(response)
        if found is None:
            found = last_line(response) if self.last_line_instead else ""
        return found.strip()


class InTags(Extraction):
    """The content of the last pair of tags, such as `<answer>Nile</answer>`; the case of the tags does not count."""

    from_: Literal["tags"] = Field(default="tags", alias="from")
    tag: str = Field(default="answer", pattern=r"^[A-Za-z_][\w.-]*$")
    """The name between the angle brackets."""

    def find(self, response: str) -> str | None:
        """Return the content of the last pair."""
        # An opening tag without its partner, as in "inside <answer> tags:", belongs to no pair.
        pair = rf"<{re.escape(self.tag)}>((?:(?!<{re.escape(self.tag)}>).)*?)</{re.escape(self.tag)}>"
        found = re.findall(pair, response, re.DOTALL | re.IGNORECASE)
        return str(found[-1]) if found else None


class LastLine(Extraction):
    """The last line that is not blank."""

    from_: Literal["last_line"] = Field(default="last_line", alias="from")

    def find(self, response: str) -> str | None:
        """Return the last line, which may be empty."""
        return last_line(response)


class Boxed(Extraction):
    r"""The content of the last complete \boxed{}, braces inside of it included."""

    from_: Literal["boxed"] = Field(default="boxed", alias="from")

    def find(self, response: str) -> str | None:
        """Return the content of the box that opens last among those that are closed."""
        opened: list[int | None] = []
        found, content = -1, None
        for brace in _BRACES.finditer(response):
            if brace[0] == "}" and opened:
                start = opened.pop()
                if start is not None and start > found:
                    found, content = start, response[start : brace.start()]
            elif brace[0] == "{":
                opened.append(None)
            elif brace[0].endswith("{") and len(brace[0]) > len("\\{"):
                opened.append(brace.end())
        return content


class RegexMatch(Extraction):
    """The last match of a regular expression: its first group that took part, or all of it if it has no group."""

    last_line_instead: ClassVar[bool] = False

    from_: Literal["regex"] = Field(default="regex", alias="from")
    pattern: str
    """In the syntax of Python's `re`; flags stand inside it, as in `(?i)`."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        reason = why_no_pattern(pattern)
        if reason:
            raise ValueError(reason)
        return pattern

    def find(self, response: str) -> str | None:
        """Return the last match."""
        last = deque(re.finditer(self.pattern, response), maxlen=1)
        return next((group for group in last[0].groups() if group is not None), last[0][0]) if last else None


def last_line(text: str) -> str:
    """Return the last line that is not blank; empty if there is none."""
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")


def why_no_pattern(pattern: str) -> str:
    """Return why a text is no regular expression; empty if it is one."""
    try:
        re.compile(pattern)
    except re.error as error:
        return f"no regular expression: {pattern!r}: {error}"
    return ""
