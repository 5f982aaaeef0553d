"""How a gateway is to treat the calls of one task, wherever it runs."""

from typing import Literal, Self

from pydantic import Field

from include.core.types import Value
from include.models.upstream import Dialect
from include.sandbox.allowance import Allowance
from include.sandbox.labels import identity
from include.sandbox.workload import Workload


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
    allowance: Allowance = Allowance()
    """What may still be spent."""
    shared_by: str = ""
    """Names the run whose gateways on this host share their pace and allowance; empty shares nothing."""

    @classmethod
    def of(cls, workload: Workload) -> Self:
        """For the containers of a task. As many tries as the run may have items under way can ever be of use."""
        run = {name: workload.labels[name] for name in ("store", "dag_run", "run") if name in workload.labels}
        return cls(
            stage=workload.stage,
            dialect=workload.settings.dialect,
            max_attempts=workload.settings.max_attempts,
            call_timeout=workload.settings.call_timeout,
            max_concurrency=workload.limits.max_containers * workload.settings.concurrency,
            allowance=workload.allowance,
            shared_by=" ".join(f"{name}={value}" for name, value in identity(run).items()),
        )
