"""Amounts that may still be spent on model calls, and the allowance that callers in many threads share."""

import time
from collections.abc import Callable
from threading import Lock
from typing import Self

from pydantic import Field

from skillopt_airflow.core.types import Value
from skillopt_airflow.core.wire_formats.wire_format import Tokens

MILLION = 1_000_000


class RemainingBudget(Value):
    """The rest of a budget; None is no limit. The default limits nothing.

    Calls are counted before they are forwarded, tokens and dollars when an answer has told them: what is under way when
    the last of them is spent is still paid.
    """

    calls: int | None = None
    tokens: int | None = None
    """Read and written together."""
    usd: float | None = None
    input_price: float = Field(default=0.0, ge=0.0)
    """US dollars for a million tokens that the model reads."""
    output_price: float = Field(default=0.0, ge=0.0)
    """US dollars for a million tokens that it writes."""

    def used_up(self) -> str:
        """Return the configuration's name of the limit that is spent; empty if something is left of each."""
        left = (("max_calls", self.calls), ("max_tokens", self.tokens), ("max_usd", self.usd))
        return next((f"budget.{name}" for name, amount in left if amount is not None and amount <= 0), "")

    def minus(self, *, calls: int = 0, prompt_tokens: int = 0, completion_tokens: int = 0) -> Self:
        """Return the budget after spending so much more."""
        usd = (prompt_tokens * self.input_price + completion_tokens * self.output_price) / MILLION
        return self.model_copy(
            update={
                "calls": None if self.calls is None else self.calls - calls,
                "tokens": None if self.tokens is None else self.tokens - prompt_tokens - completion_tokens,
                "usd": None if self.usd is None else self.usd - usd,
            }
        )

    def less(self, before: "RemainingBudget", after: "RemainingBudget") -> Self:
        """Return the budget without what was spent between two others."""
        spent = {
            name: amount - (getattr(before, name) - getattr(after, name))
            for name in ("calls", "tokens", "usd")
            if (amount := getattr(self, name)) is not None
        }
        return self.model_copy(update=spent)


REFUSED_SECONDS = 5.0
"""Seconds for which nobody is asked again, once there was no more."""

More = Callable[[RemainingBudget], RemainingBudget]
"""Takes what is left of the last amount, less than nothing included, and returns what may be spent from then on."""


class BudgetSpent(Exception):
    """Nothing is left of a limit, which the message names."""


class Allowance:
    """An amount that many callers, in whatever threads, spend from; and more of it, where somebody gives more."""

    def __init__(self, budget: RemainingBudget, more: More | None = None) -> None:
        self._left = budget
        self._more = more
        self._lock = Lock()
        self._asking = Lock()
        self._refused_until = 0.0

    def take_at_once(self) -> bool:
        """Count a call, if something is left of every limit; return whether that is so."""
        with self._lock:
            if self._left.used_up():
                return False
            self._left = self._left.minus(calls=1)
            return True

    def take(self) -> None:
        """Count a call; where a limit is used up, ask for more first, which takes a request to the object store.

        Raises:
            BudgetSpent: there is no more.
            StoreError: nobody could be asked.
        """
        while not self.take_at_once():
            with self._asking:
                self._ask()

    def give_back(self) -> None:
        """Take back a call that was counted and not made."""
        self._spend(calls=-1)

    def spend(self, tokens: Tokens, *, calls: int = 0) -> None:
        """Deduct the tokens of a call, and calls that were made without being counted before."""
        self._spend(calls=calls, prompt_tokens=tokens.prompt, completion_tokens=tokens.completion)

    def _spend(self, **spent: int) -> None:
        with self._lock:
            self._left = self._left.minus(**spent)

    def _ask(self) -> None:
        before = self._left
        if not before.used_up():
            # Another thread has just asked.
            return
        if self._more is None or time.monotonic() < self._refused_until:
            raise BudgetSpent(before.used_up())
        given = self._more(before)
        with self._lock:
            self._left = given.less(before, self._left)
        if refused := given.used_up():
            self._refused_until = time.monotonic() + REFUSED_SECONDS
            raise BudgetSpent(refused)
