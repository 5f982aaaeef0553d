"""Protocols of the two models of a training, as its stages ask them."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from pydantic import BaseModel

from skillopt_airflow.core.values.pictures import NO_PICTURES, Pictures
from skillopt_airflow.core.values.types import Message

Output = TypeVar("Output", bound=BaseModel)


class Optimizer(Protocol):
    """The optimizer model, as the stages see it."""

    def ask(
        self, stage: str, instructions: str, prompt: str, output_type: type[Output], pictures: Pictures = NO_PICTURES
    ) -> Output:
        """Make one structured call; the pictures follow on the prompt, each behind its name.

        Raises:
            ModelOutputError: the answer stayed outside `output_type` after it was asked again.
            ModelError: the provider did not answer.
        """


class Target(Protocol):
    """The target model outside of a rollout, for questions about one."""

    def ask(self, stage: str, messages: Sequence[Message], pictures: Pictures) -> str:
        """Return the model's next turn of a conversation; the pictures are those that it has marks of.

        Raises:
            ModelError: the provider did not answer.
        """
