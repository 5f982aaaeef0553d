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
# As the tools harness writes what came back.
_RESULT = re.compile(r"\[([^\[\],\n]{1,100})(?:, (\d+(?:\.\d+)?) s)?\]\n")


class ToolCall(NamedTuple):
    """A request of the target to a tool."""

    tool: str
    arguments: str
    """Indented JSON; a command, and JSON that was cut, as it is stored."""


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
    left, shown_messages = MOST_OF_CONVERSATION, 0
    for message, pieces in shown(trajectory.messages, thumbnails):
        if left <= 0:
            break
        parts = [piece if isinstance(piece, Picture) else shortened(piece, min(MOST_CHARS, left)) for piece in pieces]
        left -= sum(len(part) for part in parts if isinstance(part, str))
        shown_messages += 1
        if message.role != "call":
            turns.append(_turn(message, parts))
        elif turns and turns[-1].role == "assistant":
            turns[-1] = turns[-1]._replace(calls=(*turns[-1].calls, _call("".join(map(str, parts)))))
        else:
            turns.append(Turn("assistant", ROLES["assistant"], (), (_call("".join(map(str, parts))),)))
    return Conversation(tuple(turns), len(trajectory.messages) - shown_messages)


def _turn(message: Message, pieces: list[str | Picture]) -> Turn:
    label, seconds = ROLES[message.role], None
    if message.role == "tool" and isinstance(pieces[0], str):
        found = _RESULT.match(pieces[0])
        if found is not None:
            label, pieces = f"Result of {found[1]}", [pieces[0][found.end() :]]
            seconds = None if found[2] is None else float(found[2])
    # A picture has lines of its own, without those that its mark stood between.
    texts = [one.strip("\n") if isinstance(one, str) and len(pieces) > 1 else one for one in pieces]
    parts = (Part(thumbnail=one.content) if isinstance(one, Picture) else Part(text=one) for one in texts)
    return Turn(message.role, label, tuple(parts), seconds=seconds)


def _call(text: str) -> ToolCall:
    """Return a stored call; arguments that aren't JSON, or were cut, stay as they are."""
    if text.startswith("$ "):
        return ToolCall("command", text[2:])
    tool, found, arguments = text.partition("(")
    if not found:
        return ToolCall("tool", text)
    try:
        return ToolCall(tool, pretty(json.loads(arguments.removesuffix(")"))))
    except (ValueError, RecursionError):
        return ToolCall(tool, arguments.removesuffix(")"))


def pretty(value: object) -> str:
    """Return indented JSON, as far as a page shows it."""
    return shortened(json.dumps(value, ensure_ascii=False, indent=2), MOST_CHARS)
