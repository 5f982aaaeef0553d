"""The settings of a gateway for the calls of one task, and the amounts that it may still spend on them."""

from typing import Self

from pydantic import Field

from skillopt_airflow.core.values.types import Value
from skillopt_airflow.gateway.request_filter import DEFAULT_LIMIT

MILLION = 1_000_000

ENDED = b'{"ended":true}'
"""The last line of a gateway's program, once it has written every call: without it, some may not be known."""


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
        return any(amount is not None for amount in (self.calls, self.tokens, self.usd))

    def minus(self, *, calls: int = 0, prompt_tokens: int = 0, completion_tokens: int = 0) -> Self:
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


class GatewaySettings(Value):
    """Everything but the upstream, the address and the receiver of the calls."""

    stage: str
    """Purpose of the calls."""
    max_attempts: int = Field(ge=1)
    """Tries of one call at one server."""
    call_timeout: float = Field(gt=0.0)
    """Seconds that one try may take, a stream's end included."""
    max_concurrency: int = Field(default=64, ge=1)
    """Tries at the same time at one server, for the whole run."""
    share: int = Field(default=64, ge=1)
    """The most of these for this gateway, which knows nothing of the others."""
    max_tokens: int = Field(default=DEFAULT_LIMIT, ge=1)
    """Most tokens of an answer: a request without a limit gets this one, and a larger limit is lowered to it."""
    allowance: RemainingBudget = RemainingBudget()
    """Amount that it may spend, which nobody adds to."""
