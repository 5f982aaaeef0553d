"""What core and optimizer ask of the outside, as Protocols."""

from collections.abc import Sequence
from typing import Protocol, TypeVar

from pydantic import BaseModel

from include.core.types import Item, JsonObject, Message, Score, Trajectory

Output = TypeVar("Output", bound=BaseModel)


class Benchmark(Protocol):
    """What a folder in benchmarks/ has to offer: `benchmarks/<name>/adapter.py` holds one as `BENCHMARK`.

    The module enters the sandbox image, so it imports include.core and the standard library only.
    """

    text_columns: tuple[str, ...]
    """Columns of a record that must hold a text that is not blank."""
    list_columns: tuple[str, ...]
    """Columns of a record that must hold a list of at least one text that is not blank."""

    def identity(self, record: JsonObject) -> str:
        """What names a record, and its item, among those of all splits.

        Raises:
            DataError: with what the record lacks for it.
        """
        ...

    def item(self, record: JsonObject) -> Item:
        """One record of a data file as an item, whose id is the record's identity.

        Raises:
            DataError: with what is wrong with the record; the caller adds file and row.
        """
        ...

    def messages(self, public: JsonObject, skill: str) -> Sequence[Message]:
        """The conversation that opens a rollout under the skill."""
        ...

    def answer(self, response: str) -> str:
        """The target's final answer inside its last response."""
        ...

    def score(self, item: Item, trajectory: Trajectory) -> Score:
        """Judge an `ok` trajectory; pure, and host-side, because it sees the reference."""
        ...


class Optimizer(Protocol):
    """The optimizer model, as the stages see it."""

    def ask(self, stage: str, instructions: str, prompt: str, output_type: type[Output]) -> Output:
        """One structured call.

        Raises:
            ModelOutputError: the answer stayed outside `output_type` after it was asked again.
            ModelError: the provider did not answer.
        """
        ...


class Target(Protocol):
    """The target model outside of a rollout, for questions about one."""

    def ask(self, stage: str, messages: Sequence[Message]) -> str:
        """The model's next turn of a conversation.

        Raises:
            ModelError: the provider did not answer.
        """
        ...
