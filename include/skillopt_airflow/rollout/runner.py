"""The runner of a harness, which runs items in the container."""

from importlib import import_module
from typing import Protocol

from skillopt_airflow.core.harnesses import HARNESSES
from skillopt_airflow.core.protocols import Benchmark, Workspace
from skillopt_airflow.core.types import Trajectory
from skillopt_airflow.rollout.settings import PublicItem, RolloutSettings


class Runner(Protocol):
    """Runs items, several at the same time."""

    async def run(self, item: PublicItem, skill: str, workspace: Workspace) -> Trajectory:
        """Return what the target did with the item; a failure of the provider is a status, never an exception.

        The workspace is the item's own. The files in its outputs are named by the caller, not by the runner.
        """

    async def aclose(self) -> None:
        """Close the connections."""


def runner(settings: RolloutSettings, benchmark: Benchmark, gateway: str) -> Runner:
    """Return the runner of the harness that the settings name, which finds the gateway at a socket or an address.

    It is imported here: what one harness needs, such as the SDKs of model servers, takes a second of a processor that
    the others do without.
    """
    module, _, name = HARNESSES[settings.harness].runner.partition(":")
    made: Runner = getattr(import_module(module), name)(settings, benchmark, gateway)
    return made
