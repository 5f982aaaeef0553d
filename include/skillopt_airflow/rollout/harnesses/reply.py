"""The turns of a conversation with the target, the result of one request, and the reasons of failures."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from skillopt_airflow.core.values.pictures import Part, Pictures, is_picture, marks_in
from skillopt_airflow.core.values.types import Message, Status, Trajectory
from skillopt_airflow.tasks.protocols import Workspace

MAX_ERROR_CHARS = 500
REFUSALS = {402: Status.BUDGET, 408: Status.TIMEOUT, 504: Status.TIMEOUT}
"""Meaning of the gateway's HTTP statuses; any other is a model_error."""


def reason(text: str) -> str:
    return " ".join(text.split())[:MAX_ERROR_CHARS]


def item_pictures(texts: Iterable[str], workspace: Workspace) -> Pictures:
    named = {name for text in texts for name in marks_in(text)}
    read = {name: workspace.read_input(name) for name in named.intersection(workspace.input_names())} if named else {}
    return {name: content for name, content in read.items() if is_picture(content)}


class Turn(NamedTuple):
    """A message as every wire format knows it."""

    role: Literal["system", "user", "assistant"]
    parts: Sequence[Part]


@dataclass(frozen=True)
class Reply:
    """The result of one request; `error` is empty exactly if the status is a scored one."""

    status: Status
    error: str = ""
    lasting_error: str = ""
    """As of a trajectory."""
    text: str = ""
    """Without the model's thinking."""
    prompt_tokens: int = 0
    completion_tokens: int = 0


def conversation(
    item_id: str, messages: Sequence[Message], replies: Sequence[Reply], answer: str, started: float, clock: float
) -> Trajectory:
    """Return the trajectory of a conversation, which ends as its last reply does; without a score it has no answer.

    Args:
        replies: the target's, at least one.
        answer: what is scored.
        started: as `time.time()` told when it began.
        clock: as `time.monotonic()` did.
    """
    last = replies[-1]
    return Trajectory(
        item_id=item_id,
        status=last.status,
        error=last.error,
        lasting_error=last.lasting_error,
        messages=tuple(messages),
        answer=answer if last.status.scored else "",
        calls=len(replies),
        prompt_tokens=sum(reply.prompt_tokens for reply in replies),
        completion_tokens=sum(reply.completion_tokens for reply in replies),
        started=started,
        seconds=time.monotonic() - clock,
    )
