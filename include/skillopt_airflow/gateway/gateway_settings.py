"""The settings of a gateway for the calls of one task."""

from pydantic import Field

from skillopt_airflow.core.types import Value
from skillopt_airflow.gateway.remaining_budget import RemainingBudget
from skillopt_airflow.gateway.request_filter import DEFAULT_LIMIT

ENDED = b'{"ended":true}'
"""The last line of a gateway's program, once it has written every call: without it, some may not be known."""


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
