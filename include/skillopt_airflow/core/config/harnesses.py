"""The harnesses, by name: the ways in which a target can run an item."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from skillopt_airflow.core.wire_formats import Dialect


@dataclass(frozen=True)
class Harness:
    """All that is known of a harness outside the class that runs the items."""

    runner: str
    """The class that runs the items, as module:name; it is imported in the container alone."""
    image: str = "skillopt-sandbox:latest"
    """The project's own image for it, as local/image.py builds it."""
    wire_format: Dialect | None = None
    """The wire format that it speaks, whatever the connection; the connection's when None."""
    is_cli: bool = False
    """True if an agent CLI runs the items: it decides by itself how many calls it makes, runs code, and so gets a
    container of its own for each item."""
    needs_tools: bool = False
    """True if the benchmark has to bring tools, see `OffersTools`."""


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
