"""The settings of a gateway for the calls of one task."""

from pydantic import Field

from skillopt_airflow.core.types import Value
from skillopt_airflow.gateway.remaining_budget import RemainingBudget
from skillopt_airflow.gateway.request_filter import DEFAULT_LIMIT


class Wanted(Value):
    """The question of a gateway's program for more of the budget: a line of its standard output."""

    wanted_beyond: RemainingBudget
    """What is left of what it was given, less than nothing included."""


class Given(Value):
    """The answer: a line of its standard input."""

    budget: RemainingBudget | None
    """What it may spend from now on; None if nobody knows."""


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
    """Amount that it may spend."""
