"""Protocols of the models that the stages of a training call."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from pydantic import BaseModel

from skillopt_airflow.core.values.pictures import NO_PICTURES, Pictures
from skillopt_airflow.core.values.types import Message

Output = TypeVar("Output", bound=BaseModel)


class Optimizer(Protocol):
    """The optimizer model."""

    def ask(
        self, stage: str, instructions: str, prompt: str, output_type: type[Output], pictures: Pictures = NO_PICTURES
    ) -> Output:
        """Make one structured call; the pictures come after the prompt, each preceded by its name.

        Raise ModelOutputError if the answer still doesn't fit after a retry, and ModelError without an answer.
        """


class Target(Protocol):
    """The target model outside of rollouts, for questions about them."""

    def ask(self, stage: str, messages: Sequence[Message], pictures: Pictures) -> str:
        """Return the next turn of a conversation with these pictures; raise ModelError without an answer."""
