"""The ways in which a target can run an item."""

from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Protocol

from skillopt_airflow.core.protocols import Benchmark, Workspace
from skillopt_airflow.core.types import Trajectory
from skillopt_airflow.rollout.claude_code import ClaudeCodeHarness
from skillopt_airflow.rollout.codex import CodexHarness
from skillopt_airflow.rollout.settings import PublicItem, RolloutSettings


class Harness(Protocol):
    """Runs items, several at the same time."""

    async def run(self, item: PublicItem, skill: str, workspace: Workspace) -> Trajectory:
        """What the target did with the item; a failure of the provider is a status, never an exception.

        The workspace is the item's own. The files in its outputs are named by the caller, not by the harness.
        """
        ...


Opened = AbstractAsyncContextManager[Harness]


def _chat(settings: RolloutSettings, benchmark: Benchmark, base_url: str) -> Opened:
    # The clients of model servers take a second to import, which containers of agent CLIs do without.
    from skillopt_airflow.rollout.chat import ChatHarness

    return ChatHarness(settings, benchmark, base_url)


def _tools(settings: RolloutSettings, benchmark: Benchmark, base_url: str) -> Opened:
    from skillopt_airflow.rollout.tools import ToolsHarness

    return ToolsHarness(settings, benchmark, base_url)


HARNESSES: Mapping[str, Callable[[RolloutSettings, Benchmark, str], Opened]] = {
    "chat": _chat,
    "tools": _tools,
    "codex": CodexHarness,
    "claude_code": ClaudeCodeHarness,
}
"""By the name in `RolloutSettings.harness`; called with the settings, the benchmark and the gateway's address."""
