"""A stored conversation as a page shows it: turns, calls of tools with their arguments, results with their seconds."""

import json
import re
from typing import NamedTuple

from skillopt_airflow.core.pictures import Picture, Pictures, shown
from skillopt_airflow.core.shortening import shortened
from skillopt_airflow.core.types import Message, Trajectory
from skillopt_airflow.report.item_examples import Part
from skillopt_airflow.ui.pages import MOST_CHARS

MOST_OF_CONVERSATION = 200_000
"""Characters of all that is shown of one conversation."""
LONG = 1500
"""Characters from which on a text is shown in a box that scrolls."""
ROLES = {"system": "Skill, as the system's message", "user": "User", "assistant": "Target", "tool": "Tool"}
# As the harnesses write what their models asked for, and what came back.
_CALL = re.compile(r"([A-Za-z_][\w.-]{0,99})\((\{.*\})\)")
_COMMAND = re.compile(r"\$ (.*)", re.DOTALL)
_RESULT = re.compile(r"\[([^\[\],\n]{1,100})(?:, (\d+(?:\.\d+)?) s)?\]\n")


class ToolCall(NamedTuple):
    """A request of the target to a tool."""

    tool: str
    arguments: str
    """Indented JSON; a command as it is."""


class Turn(NamedTuple):
    """One message."""

    role: str
    label: str
    parts: tuple[Part, ...]
    calls: tuple[ToolCall, ...] = ()
    seconds: float | None = None
    """Of a tool, as far as it was measured."""

    @property
    def is_long(self) -> bool:
        """True if it is shown in a box that scrolls."""
        return sum(len(part.text) for part in self.parts) > LONG


class Conversation(NamedTuple):
    """The turns, as far as they are shown."""

    turns: tuple[Turn, ...]
    left_out: int
    """Messages at the end that are not shown."""


def conversation(trajectory: Trajectory, thumbnails: Pictures) -> Conversation:
    """Return the turns with small pictures in the places of the item's own, and long texts cut."""
    turns: list[Turn] = []
    left, messages = MOST_OF_CONVERSATION, trajectory.messages
    for number, (message, pieces) in enumerate(shown(messages, thumbnails)):
        if left <= 0:
            break
        after = messages[number + 1].role if number + 1 < len(messages) else ""
        parts = [piece if isinstance(piece, Picture) else shortened(piece, min(MOST_CHARS, left)) for piece in pieces]
        left -= sum(len(part) for part in parts if isinstance(part, str))
        turns.append(_turn(message, parts, is_answered=after == "tool"))
    return Conversation(tuple(turns), len(messages) - len(turns))


def _turn(message: Message, pieces: list[str | Picture], *, is_answered: bool) -> Turn:
    label, seconds = ROLES[message.role], None
    calls: tuple[ToolCall, ...] = ()
    if message.role == "assistant" and len(pieces) == 1 and isinstance(pieces[0], str):
        text, calls = _asked(pieces[0], is_answered=is_answered)
        pieces = [text] if text else []
    elif message.role == "tool" and isinstance(pieces[0], str):
        found = _RESULT.match(pieces[0])
        if found is not None:
            label, pieces = f"Result of {found[1]}", [pieces[0][found.end() :]]
            seconds = None if found[2] is None else float(found[2])
    # A picture has lines of its own, without those that its mark stood between.
    texts = [one.strip("\n") if isinstance(one, str) and len(pieces) > 1 else one for one in pieces]
    parts = (Part(thumbnail=one.content) if isinstance(one, Picture) else Part(text=one) for one in texts)
    return Turn(message.role, label, tuple(parts), calls, seconds)


def _asked(text: str, *, is_answered: bool) -> tuple[str, tuple[ToolCall, ...]]:
    """Return what the target said, and the calls at the end of it."""
    command = _COMMAND.fullmatch(text)
    if command is not None and is_answered:
        return "", (ToolCall("command", command[1]),)
    lines, calls = text.split("\n"), []
    while lines and (call := _call(lines[-1])) is not None:
        calls.append(call)
        lines.pop()
    return "\n".join(lines), tuple(reversed(calls))


def _call(line: str) -> ToolCall | None:
    found = _CALL.fullmatch(line)
    if found is None:
        return None
    try:
        return ToolCall(found[1], pretty(json.loads(found[2])))
    except (ValueError, RecursionError):
        return None


def pretty(value: object) -> str:
    """Return indented JSON, as far as a page shows it."""
    return shortened(json.dumps(value, ensure_ascii=False, indent=2), MOST_CHARS)
