"""The chat harness: the skill is the system message, and the benchmark may answer each reply."""

import time
from dataclasses import replace

from skillopt_airflow.core.protocols import Benchmark, FollowsUp, PlaysSession, ShowsFiles, Workspace
from skillopt_airflow.core.shortening import MOST_TOLD_CHARS, shortened
from skillopt_airflow.core.types import Message, Status, Trajectory
from skillopt_airflow.rollout.chat_target import ChatTarget
from skillopt_airflow.rollout.item_pictures import item_pictures
from skillopt_airflow.rollout.reply import Reply, conversation
from skillopt_airflow.rollout.session_chat import SessionChat
from skillopt_airflow.rollout.settings import PublicItem, RolloutSettings
from skillopt_airflow.rollout.workspace import answered_by_files


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
        """Close the connections."""
        await self._target.aclose()

    async def run(self, item: PublicItem, skill: str, workspace: Workspace) -> Trajectory:
        """Return an item's trajectory; a failure of the provider becomes its status."""
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
            messages.append(Message(role="user", content=shortened(told, MOST_TOLD_CHARS)))
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
