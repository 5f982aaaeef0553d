"""One item's session: a world in a separate process, its shortened observations, and the episode so far."""

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
from skillopt_airflow.rollout.harnesses.conversation import reason
from skillopt_airflow.rollout.settings import RolloutSettings
from skillopt_airflow.tasks.protocols import Episode, Observation

MAX_LINE_BYTES = 4 * 1024 * 1024
LAST_LINES = 5
TURN_SECONDS = 120
"""Timeout of an action, and of opening the world."""
OBSERVATION_CHARS = 4_000
LAST_OUTPUT_SECONDS = 5.0


class Session:
    """An open world. It accepts actions until the goal is reached or the turns are used up."""

    def __init__(self, process: Process, settings: RolloutSettings) -> None:
        self._process = process
        self._settings = settings
        self._errors = deque[bytes](maxlen=LAST_LINES)
        """The process's last lines of standard error."""
        self.episode: Episode
        self._error_reader = asyncio.create_task(self._read_errors())

    @property
    def over(self) -> bool:
        return self.episode.now.won or len(self.episode.turns) >= self._settings.max_turns

    async def open(self, files: Mapping[str, bytes]) -> None:
        contents = {name: base64.b64encode(content).decode() for name, content in files.items()}
        self.episode = Episode(await self._ask(contents))

    async def act(self, action: str) -> Observation:
        """Return the observation after an action. Raises SandboxError if the world's process ended or was too slow."""
        self.episode = self.episode.after(action, await self._ask(action))
        return self.episode.now

    async def close(self) -> None:
        with suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()
        await self._error_reader

    async def _ask(self, request: Any) -> Observation:
        sent, answers = self._process.stdin, self._process.stdout
        assert sent is not None
        assert answers is not None
        try:
            sent.write(json.dumps(request).encode() + b"\n")
            async with asyncio.timeout(TURN_SECONDS):
                await sent.drain()
                line = await answers.readline()
        except TimeoutError:
            raise SandboxError(f"the world did not answer within {TURN_SECONDS} s") from None
        except (OSError, ValueError) as error:
            raise await self._failure(str(error)) from error
        if not line:
            raise await self._failure("its process ended")
        observation = Observation.model_validate_json(line)
        return observation.model_copy(update={"text": shortened(observation.text, OBSERVATION_CHARS)})

    async def _failure(self, why: str) -> SandboxError:
        # Wait for the end of its error output.
        with suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._error_reader), LAST_OUTPUT_SECONDS)
        await self.close()
        errors = reason(b" ".join(self._errors).decode(errors="replace"))
        return SandboxError(f"the world broke down: {why}: {errors}".rstrip(": "))

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        while chunk := await self._process.stderr.read(MAX_LINE_BYTES):
            self._errors.extend(chunk.splitlines())


@asynccontextmanager
async def open_session(settings: RolloutSettings, files: Mapping[str, bytes]) -> AsyncIterator[Session]:
    """Open an item's world, and end its process after the block. Raises SandboxError with its error output."""
    command = (sys.executable, "-m", "skillopt_airflow.rollout.world_program", settings.benchmark)
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=MAX_LINE_BYTES)
    session = Session(process, settings)
    try:
        await session.open(files)
        yield session
    finally:
        await session.close()
