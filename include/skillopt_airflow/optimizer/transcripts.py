"""Trajectories as the optimizer is shown them."""

from collections.abc import Mapping, Sequence
from itertools import groupby
from types import MappingProxyType
from typing import NamedTuple

from pydantic import JsonValue

from skillopt_airflow.core.pictures import NO_SIZES, Pictures, PictureSizes
from skillopt_airflow.core.shortening import shortened
from skillopt_airflow.core.types import JsonObject, Message, Rollout, Status, Value
from skillopt_airflow.optimizer.sections import json_section

MOST_CHARS = 8000
"""Characters of a tool's result that the optimizer is shown; the stored row has what the target was told."""


class FollowUp(Value):
    """A question to the target about one of its trajectories, and the answer."""

    question: str
    answer: str


class Exhibits(NamedTuple):
    """The exhibits that an analyst sees besides trajectories, by the ids of their items."""

    follow_ups: Mapping[str, FollowUp] = MappingProxyType({})
    """What the target said about the first of an item's trajectories."""
    sizes: PictureSizes = NO_SIZES
    """The pictures that the target was shown."""
    pictures: Mapping[str, Pictures] = MappingProxyType({})
    """Those of them that the analyst is shown, too."""

    def labelled(self) -> Pictures:
        """Return the pictures to be shown, each by its item and its own name."""
        return {
            f"{name} of item {item_id}": content
            for item_id, pictures in self.pictures.items()
            for name, content in pictures.items()
        }


NO_EXHIBITS = Exhibits()


def trajectories_section(rollouts: Sequence[Rollout], exhibits: Exhibits = NO_EXHIBITS) -> str:
    """Show the rollouts with their scores, and the place of each among those of its item if there are several."""
    shown: list[JsonObject] = []
    for item_id, group in groupby(rollouts, key=lambda rollout: rollout.trajectory.item_id):
        tries = list(group)
        of_item = [_shown(rollout, number, len(tries)) for number, rollout in enumerate(tries, start=1)]
        if item_id in exhibits.follow_ups:
            of_item[0]["follow_up"] = exhibits.follow_ups[item_id].model_dump()
        if item_id in exhibits.sizes:
            of_item[0]["pictures"] = [size.model_dump() for size in exhibits.sizes[item_id]]
        shown += of_item
    return json_section("trajectories", shown)


def conversation(rollout: Rollout) -> tuple[Message, ...]:
    """Return the messages without the system's, which holds the skill that a prompt already shows.

    Results of tools are shortened.
    """
    return tuple(
        message.model_copy(update={"content": shortened(message.content, MOST_CHARS)})
        if message.role == "tool"
        else message
        for message in rollout.trajectory.messages
        if message.role != "system"
    )


def _shown(rollout: Rollout, number: int, tries: int) -> JsonObject:
    score = rollout.score
    messages: list[JsonValue] = [
        {"role": message.role, "content": message.content} for message in conversation(rollout)
    ]
    shown: JsonObject = {
        "item_id": rollout.trajectory.item_id,
        **({"try": f"{number} of {tries}"} if tries > 1 else {}),
        "hard": score.hard if score else None,
        "soft": score.soft if score else None,
        "feedback": score.feedback if score else "",
        "answer": rollout.trajectory.answer,
        "messages": messages,
    }
    if rollout.trajectory.status is Status.TRUNCATED:
        shown["cut_off"] = "The last answer hit the limit of tokens and ends there."
    if rollout.trajectory.status is Status.EMPTY:
        shown["empty"] = "The last answer has no text."
    return shown
