"""The tools harness: a pydantic-ai agent with the benchmark's tools and the skill as its instructions."""

import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import wraps

from pydantic_ai import Agent, Tool, ToolFailed, UsageLimits, capture_run_messages
from pydantic_ai.exceptions import AgentRunError, UsageLimitExceeded, UserError
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    ToolReturn,
    ToolReturnPart,
    UserContent,
)

from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.core.values.pictures import parts
from skillopt_airflow.core.values.text import MAX_TOLD_CHARS, shortened, storable
from skillopt_airflow.core.values.types import Message, Status, Trajectory
from skillopt_airflow.rollout.harnesses.replies import TargetModel, ending, failure, lasting, text_of
from skillopt_airflow.rollout.harnesses.reply import item_pictures, reason
from skillopt_airflow.rollout.harnesses.session import Session, opened_session
from skillopt_airflow.rollout.requirements import check_tools, with_tools
from skillopt_airflow.rollout.settings import PublicItem, RolloutSettings
from skillopt_airflow.rollout.workspace import answered_by_files
from skillopt_airflow.tasks.protocols import Benchmark, PlaysSession, Workspace

ToolFunction = Callable[..., Awaitable[str]]


@dataclass(frozen=True)
class ToolTask:
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


MAX_MESSAGES = 200
MAX_CHARS = {"assistant": 8000, "call": 8000, "user": 8000, "tool": MAX_TOLD_CHARS + 200}
"""Characters of a message by its role: what a tool gave is kept as the target was told it."""


class ToolsHarness:
    """Lets the target call the benchmark's tools until it answers, in at most `max_turns` model calls.

    What a tool raises is told to the target, but for a world that breaks down, which ends the item. A target that used
    up its turns has answered with its last text, or with the files that it made; if there is neither, that is a
    model_error. A session is judged by its outcome alone.
    """

    def __init__(self, settings: RolloutSettings, benchmark: Benchmark, gateway: str) -> None:
        check_tools(benchmark)
        self._settings = settings
        self._benchmark = benchmark
        self._max_turns = settings.max_turns
        self._target = TargetModel(settings, gateway)

    async def aclose(self) -> None:
        await self._target.aclose()

    async def run(self, item: PublicItem, skill: str, workspace: Workspace) -> Trajectory:
        started, clock = time.time(), time.monotonic()
        async with tool_task(self._benchmark, self._settings, item, workspace) as task:
            pictures = item_pictures([task.text], workspace)
            with capture_run_messages() as history:
                stopped = await self._work(self._target.content(parts(task.text, pictures)), skill, task.tools)
            responses = [turn for turn in history if isinstance(turn, ModelResponse)]
            status, error = self._outcome(history, responses, stopped, task)
            texts = [text for turn in responses if (text := text_of(turn).strip())]
            opening = (Message(role="system", content=skill), Message(role="user", content=task.text))
            return Trajectory(
                item_id=item.id,
                status=status,
                error=error,
                lasting_error="" if stopped is None else lasting(stopped),
                messages=(*opening, *_trace(history)),
                answer=task.answer(texts[-1] if texts else "") if status.scored else "",
                calls=len(responses) + _failed_calls(history, stopped),
                prompt_tokens=sum(turn.usage.input_tokens for turn in responses),
                completion_tokens=sum(turn.usage.output_tokens for turn in responses),
                started=started,
                seconds=time.monotonic() - clock,
            )

    async def _work(
        self, task: str | list[UserContent], skill: str, tools: Sequence[ToolFunction]
    ) -> AgentRunError | UserError | None:
        """Run the agent and return the error that stopped it, if any."""
        agent = Agent(
            self._target.model,
            output_type=str,
            instructions=skill,
            # In sequence, because they share the item's folders.
            tools=[Tool(_telling(tool), sequential=True) for tool in tools],
            model_settings=self._target.settings,
            # Each retry is a model call, which counts towards the limit of turns.
            retries={"tools": self._max_turns, "output": self._max_turns},
        )
        try:
            await agent.run(task, usage_limits=UsageLimits(request_limit=self._max_turns))
        except (AgentRunError, UserError) as error:
            return error
        return None

    def _outcome(
        self,
        history: Sequence[ModelMessage],
        responses: Sequence[ModelResponse],
        stopped: AgentRunError | UserError | None,
        task: ToolTask,
    ) -> tuple[Status, str]:
        # The agent takes an answer that was cut before it said anything, or in a tool's arguments, for an error.
        cut = bool(responses) and history[-1] is responses[-1] and ending(responses[-1])[0] is Status.TRUNCATED
        if stopped is not None and not cut and not isinstance(stopped, UsageLimitExceeded):
            return failure(stopped)
        status, why = ending(responses[-1])
        if status not in (Status.OK, Status.EMPTY) or (stopped is None and status is Status.OK):
            return status, why
        if any(text_of(turn).strip() for turn in responses) or task.is_answered():
            return Status.OK, ""
        if status is Status.EMPTY:
            return status, ""
        return Status.MODEL_ERROR, f"no answer after model.max_turns = {self._max_turns} model calls"


def _telling(tool: ToolFunction) -> Callable[..., Awaitable[ToolReturn]]:
    """Return the tool, changed to report failures as such, to shorten long results and to time its calls."""

    @wraps(tool)
    async def told(*arguments: object, **named: object) -> ToolReturn:
        began = time.monotonic()
        try:
            result = shortened(storable(await tool(*arguments, **named)), MAX_TOLD_CHARS)
        except SandboxError:
            # The world has broken down, of which nothing is to be told: a score would not be the target's.
            raise
        except Exception as error:
            raise ToolFailed(reason(f"{type(error).__name__}: {error}")) from error
        return ToolReturn(result, metadata=time.monotonic() - began)

    return told


def _failed_calls(history: Sequence[ModelMessage], stopped: AgentRunError | UserError | None) -> int:
    """Return one if the agent stopped because of a call without an answer, else zero."""
    unanswered = bool(history) and isinstance(history[-1], ModelRequest)
    return int(unanswered and stopped is not None and not isinstance(stopped, UsageLimitExceeded))


def _trace(history: Sequence[ModelMessage]) -> list[Message]:
    """Return the turns after the task, as far as a row may hold them."""
    turns: list[tuple[str, str]] = []
    for message in history:
        if isinstance(message, ModelResponse):
            turns.append(("assistant", text_of(message).strip()))
            turns += (("call", f"{call.tool_name}({call.args_as_json_str()})") for call in message.tool_calls)
            continue
        for part in message.parts:
            if isinstance(part, ToolReturnPart):
                heading = part.tool_name if part.metadata is None else f"{part.tool_name}, {part.metadata:.1f} s"
                turns.append(("tool", f"[{heading}]\n{part.model_response_str(wrap_if_error=False)}"))
            elif isinstance(part, RetryFeedbackPart):
                turns.append(("user", part.model_response()))
    said = [{"role": role, "content": shortened(text, MAX_CHARS[role])} for role, text in turns if text]
    # The answer is at the end.
    shown = said if len(said) <= MAX_MESSAGES else [*said[: MAX_MESSAGES - 1], said[-1]]
    return [Message.model_validate(turn) for turn in shown]
