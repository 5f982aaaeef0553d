"""The chat harness: the skill is the system message, and the benchmark can answer each reply."""

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
from skillopt_airflow.rollout.gateway_call import Answer, post
from skillopt_airflow.rollout.harnesses.conversation import Reply, conversation_trajectory, item_pictures
from skillopt_airflow.rollout.harnesses.plain_chat import parse_reply, request_body
from skillopt_airflow.rollout.harnesses.session import open_session
from skillopt_airflow.rollout.settings import PublicItem, RolloutSettings
from skillopt_airflow.rollout.workspace import has_output
from skillopt_airflow.tasks.protocols import Benchmark, FollowsUp, PlaysSession, ShowsFiles, Workspace

if TYPE_CHECKING:
    from skillopt_airflow.rollout.harnesses.target_model import TargetModel

LAST_TURNS = 2
"""Turns in a prompt without the conversation, each an action and its observation."""


class ChatTarget:
    """Sends plain requests if possible, else uses pydantic-ai.

    pydantic-ai's import and first answer take more than a second of CPU time, a plain request takes milliseconds. It's
    only imported for requests that need a server's peculiarities, and to interpret unusual answers and failures.
    """

    def __init__(self, settings: RolloutSettings, gateway: str) -> None:
        self._settings = settings
        self._gateway = gateway
        self._path = f"/v1/{WIRE_FORMATS[settings.dialect].path}"

    async def ask(self, messages: Sequence[Message], pictures: Pictures) -> Reply:
        """Return the target's next turn, or the failure."""
        body = request_body(self._settings, messages, pictures)
        if body is None:
            return await self._model.ask(messages, pictures)
        try:
            answer = await post(self._gateway, self._path, body, self._settings.patience)
        except OSError as error:
            return await self._interpret(messages, error)
        return parse_reply(self._settings.dialect, answer) or await self._interpret(messages, answer)

    async def aclose(self) -> None:
        if "_model" in vars(self):
            await self._model.aclose()

    async def _interpret(self, messages: Sequence[Message], result: Answer | OSError) -> Reply:
        """Let pydantic-ai interpret an answer or a failure, as if it had sent the request."""
        from skillopt_airflow.rollout.harnesses.target_model import TargetModel, replay_transport

        async with aclosing(TargetModel(self._settings, self._gateway, replay_transport(result))) as model:
            return await model.ask(messages, {})

    @cached_property
    def _model(self) -> "TargetModel":
        from skillopt_airflow.rollout.harnesses.target_model import TargetModel

        return TargetModel(self._settings, self._gateway)


class ChatHarness:
    """Starts a conversation with the benchmark's messages. The answer is in the target's last reply.

    A `FollowsUp` benchmark sees every reply, and its messages go to the target until the turns are used up.
    """

    def __init__(self, settings: RolloutSettings, benchmark: Benchmark, gateway: str) -> None:
        self._settings = settings
        self._benchmark = benchmark
        self._target = ChatTarget(settings, gateway)

    async def aclose(self) -> None:
        await self._target.aclose()

    async def run(self, item: PublicItem, skill: str, workspace: Workspace) -> Trajectory:
        if isinstance(self._benchmark, PlaysSession):
            return await self._play(self._benchmark, item, skill, workspace)
        started, clock = time.time(), time.monotonic()
        messages = await self._opening(item, skill, workspace)
        pictures = item_pictures([message.content for message in messages], workspace)
        replies: list[Reply] = []
        while len(replies) < self._settings.max_turns:
            reply = await self._target.ask(messages, pictures)
            replies.append(reply)
            if reply.text:
                messages.append(Message(role="assistant", content=reply.text))
            if not reply.status.scored or not isinstance(self._benchmark, FollowsUp):
                break
            follow_up = await self._benchmark.follow_up(item.public, reply.text, workspace)
            if follow_up is None:
                break
            messages.append(Message(role="user", content=shortened(follow_up, MAX_TOLD_CHARS)))
        answer = self._benchmark.answer(reply.text) if reply.status.scored else ""
        if reply.status is Status.EMPTY and has_output(workspace):
            replies[-1] = replace(reply, status=Status.OK)
        return conversation_trajectory(item.id, messages, replies, answer, started, clock)

    async def _opening(self, item: PublicItem, skill: str, workspace: Workspace) -> list[Message]:
        messages = list(self._benchmark.messages(item.public, skill))
        if isinstance(self._benchmark, ShowsFiles):
            *before, last = messages
            shown = await self._benchmark.shown_files(item.public, workspace)
            messages = [*before, Message(role=last.role, content=f"{last.content}\n\n{shown}".rstrip())]
        return messages

    async def _play(self, benchmark: PlaysSession, item: PublicItem, skill: str, workspace: Workspace) -> Trajectory:
        """Play a session. The answer is the outcome of its episode.

        The target gets a new prompt for each action, with its last turns. The trajectory has the messages of one
        conversation.
        """
        started, clock = time.time(), time.monotonic()
        system = Message(role="system", content=skill)
        messages = [system]
        replies: list[Reply] = []
        async with open_session(self._settings, workspace.sealed) as session:
            while not session.over:
                prompt = Message(role="user", content=benchmark.prompt(session.episode, LAST_TURNS))
                if not replies:
                    messages.append(prompt)
                reply = await self._target.ask([system, prompt], {})
                # The outcome is scored, so an empty reply isn't a failure.
                replies.append(replace(reply, status=Status.OK) if reply.status is Status.EMPTY else reply)
                if reply.text:
                    messages.append(Message(role="assistant", content=reply.text))
                if not reply.status.scored:
                    break
                observation = await session.act(benchmark.action(reply.text))
                messages.append(Message(role="user", content=observation.text))
            outcome = session.episode.outcome
        return conversation_trajectory(item.id, messages, replies, outcome, started, clock)
