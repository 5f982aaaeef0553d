"""How a gateway is to treat the calls of one task, wherever it runs."""

from typing import Literal

from pydantic import Field

from skillopt_airflow.core.types import Value
from skillopt_airflow.core.wire_formats import Dialect
from skillopt_airflow.gateway.remaining_budget import RemainingBudget


class GatewaySettings(Value):
    """All but the upstream, the address, and who is told of the calls."""

    stage: str
    """What the calls are for."""
    role: Literal["target", "optimizer"] = "target"
    """Whose model it is."""
    dialect: Dialect | None = None
    """The wire format that the sandbox speaks; the upstream's own when unset."""
    max_attempts: int = Field(ge=1)
    """Tries of one call at one server."""
    call_timeout: float = Field(gt=0.0)
    """Seconds that one try may take, a stream's end included."""
    max_concurrency: int = Field(default=64, ge=1)
    """Tries at the same time at one server, of all gateways together that are `shared_by` the same."""
    allowance: RemainingBudget = RemainingBudget()
    """What may still be spent."""
    shared_by: str = ""
    """Names the run whose gateways on this host share their pace and allowance; empty shares nothing."""
