"""Amounts that a gateway may still spend on model calls."""

from typing import Self

from pydantic import Field

from skillopt_airflow.core.types import Value

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

    @property
    def is_limited(self) -> bool:
        """Return whether there is any limit."""
        return any(amount is not None for amount in (self.calls, self.tokens, self.usd))

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


class BudgetSpent(Exception):
    """Nothing is left of a limit, which the message names."""
