"""A gateway's settings for one task's calls, and the rest of its budget."""

from typing import Self

from pydantic import Field

from skillopt_airflow.core.values.types import Value
from skillopt_airflow.gateway.request_filter import DEFAULT_LIMIT

MILLION = 1_000_000

ENDED = b'{"ended":true}'
"""Last line of the gateway program's output. If it's missing, some calls may be missing, too."""


class RemainingBudget(Value):
    """The rest of a budget; None means no limit.

    Calls are deducted before they are forwarded, tokens and dollars after the answer. Calls that are running when a
    limit is reached can therefore exceed it.
    """

    calls: int | None = None
    tokens: int | None = None
    """Input and output tokens together."""
    usd: float | None = None
    input_price: float = Field(default=0.0, ge=0.0)
    """US dollars per million input tokens."""
    output_price: float = Field(default=0.0, ge=0.0)
    """US dollars per million output tokens."""

    def used_up(self) -> str:
        """Return the configuration key of the limit that is used up, or an empty string."""
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
    """A limit of the budget is used up. The message is its configuration key."""


class GatewaySettings(Value):
    """All settings except the upstream, the address and the callback."""

    stage: str
    """Purpose of the calls."""
    max_attempts: int = Field(ge=1)
    """Tries per call and server."""
    call_timeout: float = Field(gt=0.0)
    """Seconds per try, including the whole stream."""
    max_concurrency: int = Field(default=64, ge=1)
    """Concurrent tries per server, for the whole run."""
    share: int = Field(default=64, ge=1)
    """Part of `max_concurrency` for this gateway."""
    max_tokens: int = Field(default=DEFAULT_LIMIT, ge=1)
    """Maximum and default token limit of an answer."""
    allowance: RemainingBudget = RemainingBudget()
    """Budget of this gateway, which never grows."""
