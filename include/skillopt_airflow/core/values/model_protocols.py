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

        Raises:
            ModelOutputError: the answer still doesn't fit `output_type` after a retry.
            ModelError: the provider didn't answer.
        """


class Target(Protocol):
    """The target model outside of rollouts, for questions about them."""

    def ask(self, stage: str, messages: Sequence[Message], pictures: Pictures) -> str:
        """Return the model's next turn of a conversation; `pictures` has those whose marks are in it.

        Raises:
            ModelError: the provider didn't answer.
        """
