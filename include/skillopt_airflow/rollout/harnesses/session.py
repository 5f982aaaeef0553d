"""One item's session: a world in a process of its own, what it shows cut to size, and the episode so far."""

import asyncio
import base64
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.core.values.text import shortened
from skillopt_airflow.rollout.harnesses.reply import reason
from skillopt_airflow.rollout.settings import RolloutSettings
from skillopt_airflow.tasks.protocols import Episode, Observation

MAX_LINE_BYTES = 4 * 1024 * 1024
LAST_LINES = 5
TURN_SECONDS = 120
"""For opening a world, or one action in it."""
OBSERVATION_CHARS = 4_000
"""Of what a world shows; the middle of the rest is left out."""
LAST_WORDS_SECONDS = 5.0


class Session:
    """A world that was opened; it takes actions as long as there are turns and the goal is not reached."""

    def __init__(self, process: Process, settings: RolloutSettings) -> None:
        self._process = process
        self._settings = settings
        self._said = deque[bytes](maxlen=LAST_LINES)
        """What the process printed last."""
        self.episode: Episode
        self._listening = asyncio.create_task(self._listen())

    @property
    def over(self) -> bool:
        return self.episode.now.won or len(self.episode.turns) >= self._settings.max_turns

    async def open(self, files: Mapping[str, bytes]) -> None:
        contents = {name: base64.b64encode(content).decode() for name, content in files.items()}
        self.episode = Episode(await self._ask(contents))

    async def act(self, action: str) -> Observation:
        """Carry out an action, and return what it brought.

        Raises:
            SandboxError: the world's process ended, was too slow, or answered something else.
        """
        self.episode = self.episode.after(action, await self._ask(action))
        return self.episode.now

    async def close(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await self._listening

    async def _ask(self, what: Any) -> Observation:
        sent, answers = self._process.stdin, self._process.stdout
        assert sent is not None
        assert answers is not None
        try:
            sent.write(json.dumps(what).encode() + b"\n")
            async with asyncio.timeout(TURN_SECONDS):
                await sent.drain()
                line = await answers.readline()
        except TimeoutError:
            raise SandboxError(f"the world did not answer within {TURN_SECONDS} s") from None
        except (OSError, ValueError) as error:
            raise await self._broken(str(error)) from error
        if not line:
            raise await self._broken("its process ended")
        return self._cut(Observation.model_validate_json(line))

    async def _broken(self, why: str) -> SandboxError:
        # It says why on its way out.
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._listening), LAST_WORDS_SECONDS)
        await self.close()
        said = reason(b" ".join(self._said).decode(errors="replace"))
        return SandboxError(f"the world broke down: {why}: {said}".rstrip(": "))

    def _cut(self, observation: Observation) -> Observation:
        return observation.model_copy(update={"text": shortened(observation.text, OBSERVATION_CHARS)})

    async def _listen(self) -> None:
        assert self._process.stderr is not None
        while line := await self._process.stderr.read(MAX_LINE_BYTES):
            self._said.extend(line.splitlines())


@asynccontextmanager
async def opened_session(settings: RolloutSettings, files: Mapping[str, bytes]) -> AsyncIterator[Session]:
    """Open the world of an item, and end its process afterwards.

    Raises:
        SandboxError: it could not be opened; the text has the process's last words.
    """
    command = (sys.executable, "-m", "skillopt_airflow.rollout.world_program", settings.benchmark)
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=MAX_LINE_BYTES)
    session = Session(process, settings)
    try:
        await session.open(files)
        yield session
    finally:
        await session.close()
