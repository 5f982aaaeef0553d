"""The part of a run's budget that a gateway, or whoever else asks a model, may spend."""

import time
from collections.abc import Callable
from threading import Lock

from skillopt_airflow.core.wire_formats.wire_format import Tokens
from skillopt_airflow.gateway.remaining_budget import RemainingBudget

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
