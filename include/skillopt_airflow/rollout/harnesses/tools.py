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
from skillopt_airflow.rollout.harnesses.conversation import item_pictures, reason
from skillopt_airflow.rollout.harnesses.session import Session, open_session
from skillopt_airflow.rollout.harnesses.target_model import (
    TargetModel,
    error_result,
    lasting_mark,
    response_status,
    text_of,
)
from skillopt_airflow.rollout.requirements import check_tools, require_tools
from skillopt_airflow.rollout.settings import PublicItem, RolloutSettings
from skillopt_airflow.rollout.workspace import has_output
from skillopt_airflow.tasks.protocols import Benchmark, PlaysSession, Workspace

ToolFunction = Callable[..., Awaitable[str]]


@dataclass(frozen=True)
class ToolTask:
    text: str
    tools: Sequence[ToolFunction]
    answer: Callable[[str], str]
    """Extracts the answer from the agent's last text."""


@asynccontextmanager
async def tool_task(
    benchmark: Benchmark, settings: RolloutSettings, item: PublicItem, workspace: Workspace
) -> AsyncIterator[ToolTask]:
    """Yield an item's task. A session's world is open within the block. Raises SandboxError."""
    if isinstance(benchmark, PlaysSession):
        async with open_session(settings, workspace.sealed) as session:
            text = benchmark.task(session.episode.opening)
            yield ToolTask(text, [_act_tool(session, benchmark)], lambda _: session.episode.outcome)
    else:
        with_tools = require_tools(benchmark)
        yield ToolTask(with_tools.task(item.public), with_tools.tools(item.public, workspace), benchmark.answer)


def _act_tool(session: Session, benchmark: PlaysSession) -> ToolFunction:
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
"""Maximum length of a message by role. Tool results are stored as the target saw them."""


class ToolsHarness:
    """Lets the target call the benchmark's tools until it answers, in at most `max_turns` model calls.

    The target gets a tool's exceptions as results, except a broken world, which ends the item. If the turns are used
    up, its last text or its files are the answer; without both, the status is model_error. The answer of a session is
    its outcome.
    """

    def __init__(self, settings: RolloutSettings, benchmark: Benchmark, gateway: str) -> None:
        check_tools(benchmark)
        self._settings = settings
        self._benchmark = benchmark
        self._target = TargetModel(settings, gateway)

    async def aclose(self) -> None:
        await self._target.aclose()

    async def run(self, item: PublicItem, skill: str, workspace: Workspace) -> Trajectory:
        started, clock = time.time(), time.monotonic()
        async with tool_task(self._benchmark, self._settings, item, workspace) as task:
            pictures = item_pictures([task.text], workspace)
            with capture_run_messages() as history:
                error = await self._run_agent(self._target.content(parts(task.text, pictures)), skill, task.tools)
            responses = [turn for turn in history if isinstance(turn, ModelResponse)]
            # A session's outcome is scored, too.
            is_answered = isinstance(self._benchmark, PlaysSession) or has_output(workspace)
            status, why = self._outcome(history, responses, error, is_answered=is_answered)
            texts = [text for turn in responses if (text := text_of(turn).strip())]
            opening = (Message(role="system", content=skill), Message(role="user", content=task.text))
            return Trajectory(
                item_id=item.id,
                status=status,
                error=why,
                lasting_error="" if error is None else lasting_mark(error),
                messages=(*opening, *_trace(history)),
                answer=task.answer(texts[-1] if texts else "") if status.scored else "",
                calls=len(responses) + _failed_calls(history, error),
                prompt_tokens=sum(turn.usage.input_tokens for turn in responses),
                completion_tokens=sum(turn.usage.output_tokens for turn in responses),
                started=started,
                seconds=time.monotonic() - clock,
            )

    async def _run_agent(
        self, task: str | list[UserContent], skill: str, tools: Sequence[ToolFunction]
    ) -> AgentRunError | UserError | None:
        """Run the agent. Return the error that ended it, if any."""
        agent = Agent(
            self._target.model,
            output_type=str,
            instructions=skill,
            # Sequential, because they share the item's folders.
            tools=[Tool(_agent_tool(tool), sequential=True) for tool in tools],
            model_settings=self._target.settings,
            # Each retry is a model call, so the limit of turns applies.
            retries={"tools": self._settings.max_turns, "output": self._settings.max_turns},
        )
        try:
            await agent.run(task, usage_limits=UsageLimits(request_limit=self._settings.max_turns))
        except (AgentRunError, UserError) as error:
            return error
        return None

    def _outcome(
        self,
        history: Sequence[ModelMessage],
        responses: Sequence[ModelResponse],
        error: AgentRunError | UserError | None,
        *,
        is_answered: bool,
    ) -> tuple[Status, str]:
        # pydantic-ai raises an error if an answer is cut before its text or within a tool's arguments.
        cut = bool(responses) and history[-1] is responses[-1] and response_status(responses[-1])[0] is Status.TRUNCATED
        if error is not None and not cut and not isinstance(error, UsageLimitExceeded):
            return error_result(error)
        status, why = response_status(responses[-1])
        if status not in (Status.OK, Status.EMPTY) or (error is None and status is Status.OK):
            return status, why
        if any(text_of(turn).strip() for turn in responses) or is_answered:
            return Status.OK, ""
        if status is Status.EMPTY:
            return status, ""
        return Status.MODEL_ERROR, f"no answer after model.max_turns = {self._settings.max_turns} model calls"


def _agent_tool(tool: ToolFunction) -> Callable[..., Awaitable[ToolReturn]]:
    """Return the tool for pydantic-ai, which reports exceptions, shortens long results and measures the time."""

    @wraps(tool)
    async def call(*arguments: object, **named: object) -> ToolReturn:
        began = time.monotonic()
        try:
            result = shortened(storable(await tool(*arguments, **named)), MAX_TOLD_CHARS)
        except SandboxError:
            # The world broke down, so the item must not be scored.
            raise
        except Exception as error:
            raise ToolFailed(reason(f"{type(error).__name__}: {error}")) from error
        return ToolReturn(result, metadata=time.monotonic() - began)

    return call


def _failed_calls(history: Sequence[ModelMessage], error: AgentRunError | UserError | None) -> int:
    """Return 1 if the agent ended because a call had no answer, else 0."""
    unanswered = bool(history) and isinstance(history[-1], ModelRequest)
    return int(unanswered and error is not None and not isinstance(error, UsageLimitExceeded))


def _trace(history: Sequence[ModelMessage]) -> list[Message]:
    """Return the turns after the task, limited in number and length."""
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
    rows = [{"role": role, "content": shortened(text, MAX_CHARS[role])} for role, text in turns if text]
    # Keep the last turn, which is the answer.
    kept = rows if len(rows) <= MAX_MESSAGES else [*rows[: MAX_MESSAGES - 1], rows[-1]]
    return [Message.model_validate(row) for row in kept]
