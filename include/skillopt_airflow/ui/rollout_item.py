"""An item as a page shows it: what a skill's rollout of it was, step by step, maybe beside another skill's."""

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

from skillopt_airflow.core.errors import DataError, ObjectMissing
from skillopt_airflow.core.item_scores import metric_value
from skillopt_airflow.core.pictures import Picture, Pictures, shown
from skillopt_airflow.core.shortening import shortened
from skillopt_airflow.core.types import Item, ItemFile, Message, Trajectory
from skillopt_airflow.report.view import Part
from skillopt_airflow.ui.pages import MOST_CHARS
from skillopt_airflow.ui.rollout_query import Subject

if TYPE_CHECKING:
    from skillopt_airflow.store.parquet import RolloutRow

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
        return ToolCall(tool, _pretty(json.loads(arguments.removesuffix(")"))))
    except (ValueError, RecursionError):
        return ToolCall(tool, arguments.removesuffix(")"))


def _pretty(value: object) -> str:
    """Return indented JSON, as far as a page shows it."""
    return shortened(json.dumps(value, ensure_ascii=False, indent=2), MOST_CHARS)


MOST_PICTURES = 8
"""Pictures of an item that are shown."""


class Try(NamedTuple):
    """A rollout of the item."""

    row: "RolloutRow"
    score: float | None
    """What a gate compares."""


class Side(NamedTuple):
    """A skill's rollouts of the item."""

    label: str
    counted: Try | None
    """The one that the list has; None where there is none."""
    said: Conversation | None
    tries: Sequence[Try]
    """All rollouts of the item, the one that counts among them."""

    @property
    def started(self) -> datetime | None:
        """Return when the target began; None where nothing did."""
        seconds = 0.0 if self.counted is None else self.counted.row.rollout.trajectory.started
        return datetime.fromtimestamp(seconds, UTC) if seconds else None


class Opened(NamedTuple):
    """All of the page."""

    item_id: str
    sides: tuple[Side, ...]
    difference: float | None
    """The score of the first side less that of the second."""
    item: Item | None
    """None where no run has it any more."""
    record: str
    """JSON of what the target may see."""
    reference: str
    """JSON of what the scorer needs."""


def opened(subject: Subject, mark: str) -> Opened:
    """Return the item with the mark; rollouts of an earlier content of it have another one.

    Raises:
        DataError: the skill has no rollout of such an item.
        SkillOptError: it cannot be read.
    """
    from skillopt_airflow.store.rollout_browser import RolloutBrowser

    browser = RolloutBrowser(subject.store, subject.prefix)
    keys = [(subject.key, subject.label), (subject.other, subject.other_label)]
    found = [
        (label, [row for row in browser.tries(key, mark) if not subject.alone or row.run == subject.run])
        for key, label in keys
        if key is not None
    ]
    rows = [row for _, tries in found for row in tries]
    if not rows:
        raise DataError("there is no rollout of such an item; rollouts are removed after retention.trajectory_days")
    item = _item(subject, rows)
    thumbnails = {} if item is None else _thumbnails(subject, item.files)
    sides = tuple(_side(subject, label, tries, thumbnails) for label, tries in found)
    scores = [side.counted.score for side in sides if side.counted is not None and side.counted.score is not None]
    difference = scores[0] - scores[1] if len(scores) > 1 else None
    record, reference = ("", "") if item is None else (_pretty(item.public), _pretty(item.reference))
    return Opened(rows[0].rollout.trajectory.item_id, sides, difference, item, record, reference)


def _item(subject: Subject, rows: "Sequence[RolloutRow]") -> Item | None:
    """Return the item as it was when it ran, of a run that stored a rollout of it."""
    from skillopt_airflow.store.items import find_item
    from skillopt_airflow.store.keys import RunKeys

    if subject.key is None:
        return None
    for run in dict.fromkeys([*([subject.run] if subject.run else []), *(row.run for row in rows)]):
        keys = RunKeys(subject.prefix, subject.benchmark, run)
        item = find_item(subject.store, keys.items(subject.key.split), rows[0].rollout.trajectory.item_id)
        if item is not None and item.fingerprint == rows[0].item_fingerprint:
            return item
    return None


def _side(subject: Subject, label: str, rows: "Sequence[RolloutRow]", thumbnails: Pictures) -> Side:
    from skillopt_airflow.store.rollout_browser import counting

    rules, counted = subject.rules, counting(rows, subject.run)

    def scored(row: "RolloutRow") -> Try:
        found = row.rollout.score
        return Try(row, None if found is None else metric_value(found, rules.gate_metric, rules.gate_mixed_weight))

    said = None if counted is None else conversation(counted.rollout.trajectory, thumbnails)
    return Side(label, None if counted is None else scored(counted), said, [scored(row) for row in rows])


def _thumbnails(subject: Subject, files: Sequence[ItemFile]) -> dict[str, bytes]:
    """Return small pictures in place of the item's first ones, by name."""
    from skillopt_airflow.store.files import FileStore
    from skillopt_airflow.store.picture_files import thumbnail

    kept, made = FileStore(subject.store, subject.prefix), {}
    for file in [file for file in files if file.picture][:MOST_PICTURES]:
        with suppress(ObjectMissing):
            made[file.name] = thumbnail(kept.get(file.sha256))
    return made
