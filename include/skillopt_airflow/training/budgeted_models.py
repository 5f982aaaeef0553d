"""Models that are asked outside of sandboxes: within the run's budget, and so many questions at a time."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock, Semaphore
from typing import TYPE_CHECKING

from skillopt_airflow.core.errors import BudgetUsedUp
from skillopt_airflow.core.pictures import NO_PICTURES, Pictures
from skillopt_airflow.core.protocols import Optimizer, Output, Target
from skillopt_airflow.core.types import Message, ModelCall
from skillopt_airflow.core.wire_formats.wire_format import Tokens
from skillopt_airflow.gateway.remaining_budget import Allowance, BudgetSpent

if TYPE_CHECKING:
    from skillopt_airflow.training.budget_lease import BudgetPart


class Turns:
    """The turns of those who ask one model; each question is counted as a call before it is asked."""

    def __init__(self, part: "BudgetPart", at_once: Semaphore) -> None:
        self._part = part
        self._at_once = at_once
        self._allowance = Allowance(part.budget, part.more)
        self._lock = Lock()
        self._ahead = 0
        """Calls that were counted and have not been reported yet."""

    @contextmanager
    def turn(self) -> Iterator[None]:
        """Wait for a turn, and hold it for as long as the block runs.

        Raises:
            BudgetUsedUp: the run's budget allows no further call.
            StoreError: what is left of it cannot be read or written.
        """
        with self._at_once:
            try:
                self._allowance.take()
            except BudgetSpent as limit:
                raise BudgetUsedUp(f"{limit} is used up") from None
            with self._lock:
                self._ahead += 1
            yield

    def count(self, call: ModelCall) -> None:
        """Count a call that was made: a question may take several, as one that has to be asked again."""
        self._part.count(call)
        with self._lock:
            further = self._ahead == 0
            self._ahead -= not further
        tokens = Tokens(call.prompt_tokens, call.completion_tokens)
        self._allowance.spend(tokens, calls=int(further))
        self._part.renew()


class BudgetedOptimizer:
    """An `Optimizer`, or a judge, that waits for its turn."""

    def __init__(self, inner: Optimizer, turns: Turns) -> None:
        self._inner, self._turns = inner, turns

    def ask(
        self, stage: str, instructions: str, prompt: str, output_type: type[Output], pictures: Pictures = NO_PICTURES
    ) -> Output:
        """Return the answer; raise what the inner one does, and `turn`."""
        with self._turns.turn():
            return self._inner.ask(stage, instructions, prompt, output_type, pictures)


class BudgetedTarget:
    """A `Target` that waits for its turn."""

    def __init__(self, inner: Target, turns: Turns) -> None:
        self._inner, self._turns = inner, turns

    def ask(self, stage: str, messages: Sequence[Message], pictures: Pictures) -> str:
        """Return the reply; raise what the inner one does, and `turn`."""
        with self._turns.turn():
            return self._inner.ask(stage, messages, pictures)
