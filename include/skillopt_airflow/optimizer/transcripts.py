"""Trajectories as the optimizer is shown them."""

from collections.abc import Mapping, Sequence

from pydantic import JsonValue

from skillopt_airflow.core.types import JsonObject, Message, Rollout, Status, Value
from skillopt_airflow.optimizer.sections import json_section


class FollowUp(Value):
    """A question to the target about one of its trajectories, and the answer."""

    question: str
    answer: str


def trajectories_section(rollouts: Sequence[Rollout], follow_ups: Mapping[str, FollowUp]) -> str:
    """Show the rollouts with their scores; `follow_ups` are by item id."""
    return json_section("trajectories", [_shown(rollout, follow_ups) for rollout in rollouts])


def conversation(rollout: Rollout) -> tuple[Message, ...]:
    """Return the messages without the system's, which holds the skill that a prompt already shows."""
    return tuple(message for message in rollout.trajectory.messages if message.role != "system")


def _shown(rollout: Rollout, follow_ups: Mapping[str, FollowUp]) -> JsonObject:
    score = rollout.score
    item_id = rollout.trajectory.item_id
    messages: list[JsonValue] = [message.model_dump() for message in conversation(rollout)]
    shown: JsonObject = {
        "item_id": item_id,
        "hard": score.hard if score else None,
        "soft": score.soft if score else None,
        "feedback": score.feedback if score else "",
        "answer": rollout.trajectory.answer,
        "messages": messages,
    }
    if rollout.trajectory.status is Status.TRUNCATED:
        shown["cut_off"] = "The last answer hit the limit of tokens and ends there."
    follow_up = follow_ups.get(item_id)
    return shown if follow_up is None else shown | {"follow_up": follow_up.model_dump()}
