"""The harnesses by name: the ways in which a target runs an item."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from skillopt_airflow.core.wire_formats import Dialect


@dataclass(frozen=True)
class Harness:
    """The properties of a harness."""

    runner: str
    """The class that runs the items, as module:name; only the container imports it."""
    image: str = "skillopt-sandbox:latest"
    """The project's image for the harness, which local/image.py builds."""
    wire_format: Dialect | None = None
    """The wire format of the harness; None for the connection's."""
    is_cli: bool = False
    """True for an agent CLI. It chooses its number of calls and runs code, so each item gets its own container."""
    needs_tools: bool = False
    """True if the benchmark must have tools, see `OffersTools`."""


HARNESSES: Mapping[str, Harness] = {
    "chat": Harness("skillopt_airflow.rollout.harnesses.chat:ChatHarness"),
    "tools": Harness("skillopt_airflow.rollout.harnesses.tools:ToolsHarness", needs_tools=True),
    "codex": Harness(
        "skillopt_airflow.rollout.harnesses.codex:CodexHarness",
        image="skillopt-sandbox-codex:latest",
        wire_format="openai",
        is_cli=True,
    ),
    "claude_code": Harness(
        "skillopt_airflow.rollout.harnesses.claude_code:ClaudeCodeHarness",
        image="skillopt-sandbox-claude-code:latest",
        wire_format="anthropic",
        is_cli=True,
    ),
}

if TYPE_CHECKING:
    HarnessName = str
else:
    HarnessName = Literal[tuple(HARNESSES)]
