"""The ways in which a target can run an item."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from include.core.ports import Benchmark
from include.core.types import Trajectory
from include.rollout.chat import ChatHarness
from include.rollout.settings import PublicItem, RolloutSettings


class Harness(Protocol):
    """Runs items, several at the same time."""

    async def run(self, item: PublicItem, skill: str) -> Trajectory:
        """What the target did with the item; a failure of the provider is a status, never an exception."""
        ...


HARNESSES: Mapping[str, Callable[[RolloutSettings, Benchmark, str], AbstractAsyncContextManager[Harness]]] = {
    "chat": ChatHarness,
}
"""By the name in `RolloutSettings.harness`; called with the settings, the benchmark and the gateway's address."""
