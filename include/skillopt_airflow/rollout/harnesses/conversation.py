"""A conversation with the target: its turns, the reply to one request, and its trajectory."""

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from skillopt_airflow.core.values.pictures import Part, Pictures, is_picture, marks_in
from skillopt_airflow.core.values.types import Message, Status, Trajectory
from skillopt_airflow.tasks.protocols import Workspace

MAX_ERROR_CHARS = 500
REFUSALS = {402: Status.BUDGET, 408: Status.TIMEOUT, 504: Status.TIMEOUT}
"""Statuses by the gateway's HTTP status. Any other is a model_error."""


def reason(text: str) -> str:
    return " ".join(text.split())[:MAX_ERROR_CHARS]


def item_pictures(texts: Iterable[str], workspace: Workspace) -> Pictures:
    marks = {name for text in texts for name in marks_in(text)}
    files = {name: workspace.read_input(name) for name in marks.intersection(workspace.input_names())} if marks else {}
    return {name: content for name, content in files.items() if is_picture(content)}


class Turn(NamedTuple):
    role: Literal["system", "user", "assistant"]
    parts: Sequence[Part]


@dataclass(frozen=True)
class Reply:
    """The result of one request. `error` is empty if and only if the status is scored."""

    status: Status
    error: str = ""
    lasting_error: str = ""
    """See `Trajectory`."""
    text: str = ""
    """Without the model's thinking."""
    prompt_tokens: int = 0
    completion_tokens: int = 0


def conversation_trajectory(
    item_id: str, messages: Sequence[Message], replies: Sequence[Reply], answer: str, started: float, clock: float
) -> Trajectory:
    """Return the trajectory of a conversation with at least one reply. Its status is the last reply's.

    `started` and `clock` are `time.time()` and `time.monotonic()` at its start.
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
