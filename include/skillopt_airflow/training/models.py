"""The models of a run, as its stages ask for them; where they come from is the caller's business."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Protocol

from skillopt_airflow.core.protocols import Optimizer, Target
from skillopt_airflow.core.types import ModelCall
from skillopt_airflow.gateway.upstream import Upstream

OnCall = Callable[[ModelCall], None]


class Models(Protocol):
    """Opens the connections to a run's models."""

    def optimizer(self, on_call: OnCall) -> AbstractContextManager[Optimizer]:
        """The optimizer, for the time of a `with` block; every call is reported."""
        ...

    def target(self, on_call: OnCall) -> AbstractContextManager[Target]:
        """The target outside of a sandbox, for questions about what it did; every call is reported."""
        ...

    def upstream(self) -> Upstream:
        """The target's address and credentials, for the gateway of a sandbox."""
        ...
