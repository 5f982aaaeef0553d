"""An item as the tools harness gives it to an agent: a task, tools, and how its answer is taken."""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from skillopt_airflow.core.protocols import Benchmark, PlaysSession, Workspace
from skillopt_airflow.rollout.requirements import with_tools
from skillopt_airflow.rollout.session import Session, opened_session
from skillopt_airflow.rollout.settings import PublicItem, RolloutSettings
from skillopt_airflow.rollout.workspace import answered_by_files

ToolFunction = Callable[..., Awaitable[str]]


@dataclass(frozen=True)
class ToolTask:
    """An item for an agent."""

    text: str
    tools: Sequence[ToolFunction]
    answer: Callable[[str], str]
    """Takes the answer from the agent's last text."""
    is_answered: Callable[[], bool]
    """Says whether something is there to be judged though the agent has said nothing."""


@asynccontextmanager
async def tool_task(
    benchmark: Benchmark, settings: RolloutSettings, item: PublicItem, workspace: Workspace
) -> AsyncIterator[ToolTask]:
    """Yield an item's task; if it is a session, the world is there as long as the block runs.

    Raises:
        SandboxError: the world could not be opened.
    """
    if isinstance(benchmark, PlaysSession):
        async with opened_session(settings, workspace.sealed) as session:
            text = benchmark.task(session.episode.opening)
            yield ToolTask(text, [_acting(session, benchmark)], lambda _: session.episode.outcome, lambda: True)
    else:
        tooled = with_tools(benchmark)
        yield ToolTask(
            tooled.task(item.public),
            tooled.tools(item.public, workspace),
            benchmark.answer,
            lambda: answered_by_files(workspace),
        )


def _acting(session: Session, benchmark: PlaysSession) -> ToolFunction:
    async def act(action: str) -> str:
        """Act in the world once; returns what that brings.

        Args:
            action: the action, in the words of the world.
        """
        if session.over:
            return "The session is over, and takes no action any more."
        return benchmark.shown(await session.act(action))

    return act
