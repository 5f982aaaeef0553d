"""One item by a harness, against a server that answers as a test says, and the folders of a rollout program."""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from types import MappingProxyType
from typing import Any

from skillopt_airflow.core.values.types import Trajectory
from skillopt_airflow.rollout.settings import PublicItem, RolloutSettings
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
    inputs: Path = Path("/nowhere"),
) -> tuple[Trajectory, list[Asked]]:
    """Run an item by the harness that the base URL gives; return its trajectory and the requests."""

    async def main(base_url: str) -> Trajectory:
        async with aclosing(harness(base_url)) as opened:
            folders = ItemFolders(inputs, outputs, 20.0, sealed=sealed)
            trajectory: Trajectory = await opened.run(item, "Be short.", folders)
            return trajectory

    with ScriptedProvider(answer) as provider:
        return asyncio.run(main(provider.base_url.removesuffix("/v1"))), provider.requests


def program_inputs(folder: Path, items: Sequence[Mapping[str, Any]], **changed: Any) -> Path:
    """Make the folder of inputs of a rollout program."""
    folder.mkdir()
    (folder / "settings.json").write_text(RolloutSettings(**PLAIN | changed).model_dump_json())
    (folder / "skill.md").write_text("Be short.")
    (folder / "items.jsonl").write_text("".join(json.dumps(item) + "\n" for item in items))
    return folder


def trajectories(outputs: Path) -> dict[str, Trajectory]:
    """The rows of the program's outputs, one per item."""
    lines = (outputs / "trajectories.jsonl").read_bytes().splitlines()
    rows = {row.item_id: row for row in map(Trajectory.model_validate_json, lines)}
    assert len(rows) == len(lines)
    return rows
