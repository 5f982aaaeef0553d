"""The chat harness: the skill is the system message, and the benchmark may answer each reply."""

import time
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from skillopt_airflow.core.values.pictures import Pictures
from skillopt_airflow.core.values.text import MAX_TOLD_CHARS, shortened
from skillopt_airflow.core.values.types import Message, Status, Trajectory
from skillopt_airflow.core.wire_formats import WIRE_FORMATS
from skillopt_airflow.rollout.gateway_call import Answer, posted
from skillopt_airflow.rollout.harnesses.plain_chat import read_reply, request_body
from skillopt_airflow.rollout.harnesses.reply import Reply, conversation, item_pictures
from skillopt_airflow.rollout.harnesses.session import Session, opened_session
from skillopt_airflow.rollout.settings import PublicItem, RolloutSettings
from skillopt_airflow.rollout.workspace import answered_by_files
from skillopt_airflow.tasks.protocols import Benchmark, FollowsUp, PlaysSession, ShowsFiles, Workspace

if TYPE_CHECKING:
    from skillopt_airflow.rollout.harnesses.replies import TargetModel

LAST_TURNS = 2
"""That a fresh prompt shows, each an action and what it brought."""


class ChatTarget:
    """Asks plainly where that is enough, else through pydantic-ai.

    Its import and its first answer cost a container more than a second of a processor, a plain call milliseconds. So
    it is imported where a request is none that every server takes alike, or an answer is none: it says then what
    came, in its own words.
    """

    def __init__(self, settings: RolloutSettings, gateway: str) -> None:
        self._settings = settings
        self._gateway = gateway
        self._path = f"/v1/{WIRE_FORMATS[settings.dialect].path}"

    async def ask(self, messages: Sequence[Message], pictures: Pictures) -> Reply:
        """Return the next turn of a conversation, or the reason why there is none."""
        body = request_body(self._settings, messages, pictures)
        if body is None:
            return await self._model.ask(messages, pictures)
        try:
            answer = await posted(self._gateway, self._path, body, self._settings.patience)
        except OSError as error:
            return await self._explained(messages, error)
        return read_reply(self._settings.dialect, answer) or await self._explained(messages, answer)

    async def aclose(self) -> None:
        if "_model" in vars(self):
            await self._model.aclose()

    async def _explained(self, messages: Sequence[Message], came: Answer | OSError) -> Reply:
        """Return what pydantic-ai makes of an answer, or of its absence, as if it had asked itself."""
        from skillopt_airflow.rollout.harnesses.replies import Replayed, TargetModel

        async with aclosing(TargetModel(self._settings, self._gateway, Replayed(came))) as model:
            return await model.ask(messages, {})

    @cached_property
    def _model(self) -> "TargetModel":
        from skillopt_airflow.rollout.harnesses.replies import TargetModel

        return TargetModel(self._settings, self._gateway)


class SessionChat:
    """Plays the items of a benchmark; the answer of an item is its episode's outcome.

    The target is asked afresh for each action, and shown its last turns; the messages are those of one conversation.
    """

    def __init__(self, settings: RolloutSettings, benchmark: PlaysSession, target: ChatTarget) -> None:
        self._settings = settings
        self._benchmark = benchmark
        self._target = target

    async def run(self, item: PublicItem, skill: str, workspace: Workspace) -> Trajectory:
        started, clock = time.time(), time.monotonic()
        system = Message(role="system", content=skill)
        replies: list[Reply] = []
        async with opened_session(self._settings, workspace.sealed) as session:
            said = [system, self._prompt(session)]
            while not session.over:
                reply = await self._target.ask([system, self._prompt(session)], {})
                # The outcome is the answer.
                replies.append(replace(reply, status=Status.OK) if reply.status is Status.EMPTY else reply)
                if reply.text:
                    said.append(Message(role="assistant", content=reply.text))
                if not reply.status.scored:
                    break
                observation = await session.act(self._benchmark.action(reply.text))
                said.append(Message(role="user", content=observation.text))
            outcome = session.episode.outcome
        return conversation(item.id, said, replies, outcome, started, clock)

    def _prompt(self, session: Session) -> Message:
        return Message(role="user", content=self._benchmark.prompt(session.episode, LAST_TURNS))


class ChatHarness:
    """Opens a conversation as the benchmark says; the target's answer is in its last reply.

    A `FollowsUp` benchmark sees each reply, the last one too, and what it says is told to the target while that has
    turns left. A `PlaysSession` benchmark is played, see `SessionChat`.
    """

    def __init__(self, settings: RolloutSettings, benchmark: Benchmark, gateway: str) -> None:
        self._settings = settings
        self._benchmark = benchmark
        self._max_turns = settings.max_turns
        self._target = ChatTarget(settings, gateway)

    async def aclose(self) -> None:
        await self._target.aclose()

    async def run(self, item: PublicItem, skill: str, workspace: Workspace) -> Trajectory:
        if isinstance(self._benchmark, PlaysSession):
            return await SessionChat(self._settings, self._benchmark, self._target).run(item, skill, workspace)
        started, clock = time.time(), time.monotonic()
        messages = await self._opening(item, skill, workspace)
        pictures = item_pictures([message.content for message in messages], workspace)
        replies: list[Reply] = []
        while len(replies) < self._max_turns:
            reply = await self._target.ask(messages, pictures)
            replies.append(reply)
            if reply.text:
                messages.append(Message(role="assistant", content=reply.text))
            if not reply.status.scored or not isinstance(self._benchmark, FollowsUp):
                break
            told = await self._benchmark.follow_up(item.public, reply.text, workspace)
            if told is None:
                break
            messages.append(Message(role="user", content=shortened(told, MAX_TOLD_CHARS)))
        answer = self._benchmark.answer(reply.text) if reply.status.scored else ""
        if reply.status is Status.EMPTY and answered_by_files(workspace):
            replies[-1] = replace(reply, status=Status.OK)
        return conversation(item.id, messages, replies, answer, started, clock)

    async def _opening(self, item: PublicItem, skill: str, workspace: Workspace) -> list[Message]:
        messages = list(self._benchmark.messages(item.public, skill))
        if isinstance(self._benchmark, ShowsFiles):
            *before, last = messages
            shown = await self._benchmark.shown_files(item.public, workspace)
            messages = [*before, Message(role=last.role, content=f"{last.content}\n\n{shown}".rstrip())]
        return messages
