"""A session by the chat harness: the target is asked for one action after the other."""

import time
from collections.abc import Sequence
from dataclasses import replace

from skillopt_airflow.core.protocols import PlaysSession, Workspace
from skillopt_airflow.core.types import Message, Status, Trajectory
from skillopt_airflow.rollout.chat_target import ChatTarget
from skillopt_airflow.rollout.reply import Reply, conversation
from skillopt_airflow.rollout.session import Session, opened_session
from skillopt_airflow.rollout.settings import PublicItem, RolloutSettings


class SessionChat:
    """Plays the items of a benchmark; the answer of an item is its episode's outcome.

    Its messages are those of one conversation, also where the target was asked afresh for each action.
    """

    def __init__(self, settings: RolloutSettings, benchmark: PlaysSession, target: ChatTarget) -> None:
        self._settings = settings
        self._benchmark = benchmark
        self._target = target
        self._converses = settings.session.history == "conversation"

    async def run(self, item: PublicItem, skill: str, workspace: Workspace) -> Trajectory:
        """Return an item's trajectory; a failure of the provider becomes its status, a broken world an error."""
        started, clock = time.time(), time.monotonic()
        system = Message(role="system", content=skill)
        replies: list[Reply] = []
        async with opened_session(self._settings, workspace.sealed) as session:
            said = [system, self._prompt(session)]
            while not session.over:
                reply = await self._target.ask(self._asked(said, session), {})
                # The outcome is the answer.
                replies.append(replace(reply, status=Status.OK) if reply.status is Status.EMPTY else reply)
                if reply.text:
                    said.append(Message(role="assistant", content=reply.text))
                if not reply.status.scored:
                    break
                observation = await session.act(self._benchmark.action(reply.text))
                shown = self._benchmark.shown(observation) if self._converses else observation.text
                said.append(Message(role="user", content=shown))
            outcome = session.episode.outcome
        return conversation(item.id, said, replies, outcome, started, clock)

    def _asked(self, said: Sequence[Message], session: Session) -> Sequence[Message]:
        return said if self._converses else [said[0], self._prompt(session)]

    def _prompt(self, session: Session) -> Message:
        last_turns = self._settings.session.last_turns
        return Message(role="user", content=self._benchmark.prompt(session.episode, last_turns))
