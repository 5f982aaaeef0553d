"""The turns of a conversation with the target, and the result of one request."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from skillopt_airflow.core.pictures import Part
from skillopt_airflow.core.types import Status


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
