"""One item by a harness, against a server that answers as a test says."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from pathlib import Path
from types import MappingProxyType
from typing import Any

from skillopt_airflow.core.types import Trajectory
from skillopt_airflow.rollout.settings import PublicItem
from skillopt_airflow.rollout.workspace import ItemFolders
from tests.gateway.scripted_provider import Asked, Reply, ScriptedProvider

PLAIN: dict[str, Any] = {
    "benchmark": "searchqa",
    "dialect": "openai-chat",
    "model": "stand-in-target",
    "max_tokens": 64,
    "concurrency": 1,
    "call_timeout": 5,
    "max_attempts": 1,
}
"""Settings of a rollout program."""


def run_item(
    answer: Callable[[Asked], Reply],
    harness: Callable[[str], Any],
    item: PublicItem,
    outputs: Path,
    sealed: Mapping[str, bytes] = MappingProxyType({}),
) -> tuple[Trajectory, list[Asked]]:
    """Run an item by the harness that the base URL gives; return its trajectory and the requests."""

    async def main(base_url: str) -> Trajectory:
        async with aclosing(harness(base_url)) as opened:
            folders = ItemFolders(Path("/nowhere"), outputs, 20.0, sealed=sealed)
            trajectory: Trajectory = await opened.run(item, "Be short.", folders)
            return trajectory

    with ScriptedProvider(answer) as provider:
        return asyncio.run(main(provider.base_url.removesuffix("/v1"))), provider.requests
