"""State that the gateways of one run share: the rate limit of each server.

A run's containers belong to different task processes. Those on one host meet in a folder of the host's temporary
folder: a JSON document that is replaced under a lock, and a locked file for each gateway that lives, so that the kernel
itself tells when one was killed. Gateways on other hosts are not seen: each host finds its own pace.
"""

import asyncio
import fcntl
import hashlib
import os
import shutil
import stat
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from pydantic import Field, ValidationError

from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.core.types import Value
from skillopt_airflow.gateway.locked_document import LockedDocument, locked_at_once
from skillopt_airflow.gateway.rate_limit import RateLimit

Result = TypeVar("Result")

PREFIX = "skillopt-gateways-"
DOCUMENT = "state"
CENSUS_SECONDS = 1.0
"""Between two looks for gateways that were killed."""


class State(Value):
    """The shared values."""

    limits: Mapping[str, RateLimit] = Field(default_factory=dict)
    """Limits by server, which is a connection, an address and a model."""

    def limit(self, server: str) -> RateLimit:
        """Return the server's limit; a new one if nobody used it yet."""
        return self.limits.get(server, RateLimit())

    def with_limit(self, server: str, limit: RateLimit) -> "State":
        """Return the state with another limit of a server."""
        return State(limits={**self.limits, server: limit})

    def without(self, gone: frozenset[str]) -> "State":
        """Return the state without what gateways that are gone held."""
        limits = {
            name: limit.model_copy(update={"busy": {who: n for who, n in limit.busy.items() if who not in gone}})
            for name, limit in self.limits.items()
        }
        return State(limits=limits)


class SharedState:
    """State that gateways share; `me` is this one, which is the only one in this class."""

    me = "alone"

    def __init__(self) -> None:
        self._state = State()

    async def update(self, change: Callable[[State], tuple[State, Result]]) -> Result:
        """Replace the state by what `change` makes of it, nobody coming between, and return its result."""
        self._state, result = change(self._state)
        return result

    async def update_limit(self, server: str, change: Callable[[RateLimit], tuple[RateLimit, Result]]) -> Result:
        """Do the same with one server's limit."""

        def changed(state: State) -> tuple[State, Result]:
            before = state.limit(server)
            after, result = change(before)
            return state if after is before else state.with_limit(server, after), result

        return await self.update(changed)


class _OnHost(SharedState):
    """State in a folder of the host; see `shared`."""

    def __init__(self, folder: Path, me: str) -> None:
        self.me = me
        self._folder = folder
        self._next_census = 0.0
        self._queue = asyncio.Lock()
        self._document = LockedDocument(folder / DOCUMENT)

    async def update(self, change: Callable[[State], tuple[State, Result]]) -> Result:
        """Replace the state; what killed gateways held becomes free after a second."""
        async with self._queue, self._document.locked():
            before = stored = self._read()
            if time.monotonic() >= self._next_census:
                if gone := self._bury():
                    before = stored.without(gone)
                self._next_census = time.monotonic() + CENSUS_SECONDS
            after, result = change(before)
            if after is not stored:
                self._write(after)
        return result

    async def join(self) -> None:
        """Show that this gateway is alive.

        Raises:
            FileNotFoundError: the last gateway to leave has just removed the folder.
        """
        try:
            async with self._document.locked():
                if self._document.is_removed():
                    raise FileNotFoundError(self._folder)
                self._alive = os.open(self._folder / f"{self.me}.alive", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
                fcntl.flock(self._alive, fcntl.LOCK_EX)
        except BaseException:
            self._document.close()
            raise

    async def leave(self) -> None:
        """End, and remove the folder if no other gateway is alive."""
        try:
            async with self._document.locked():
                os.close(self._alive)
                if not self._document.is_removed() and _is_empty(self._folder):
                    shutil.rmtree(self._folder, ignore_errors=True)
        finally:
            self._document.close()

    def _bury(self) -> frozenset[str]:
        gone = frozenset(_ended(self._folder))
        for gateway in gone:
            (self._folder / f"{gateway}.alive").unlink()
        return gone

    def _read(self) -> State:
        try:
            return State.model_validate_json(self._document.read())
        except ValidationError:
            return State()

    def _write(self, state: State) -> None:
        self._document.write(state.model_dump_json(exclude_defaults=True).encode())


@asynccontextmanager
async def shared(run: str) -> AsyncIterator[SharedState]:
    """Yield the state of all gateways with the same `run`; an empty name shares nothing.

    Raises:
        SandboxError: the host's temporary folder cannot be written, or somebody else made the folder.
    """
    if not run:
        yield SharedState()
        return
    try:
        state = await _join(run)
    except OSError as error:
        raise SandboxError(f"the model gateways cannot meet below {tempfile.gettempdir()}: {error}") from error
    try:
        yield state
    finally:
        await state.leave()


async def _join(run: str) -> _OnHost:
    base = Path(tempfile.gettempdir())
    _sweep(base)
    digest = hashlib.sha256(run.encode()).hexdigest()[:24]
    folder = base / f"{PREFIX}{os.getuid()}-{digest}"
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        # The last gateway to leave removes the folder; whoever runs into that starts again.
        with suppress(FileNotFoundError):
            _check_owner(folder)
            state = _OnHost(folder, uuid4().hex)
            await state.join()
            return state


def _sweep(base: Path) -> None:
    """Remove this user's folders in which no gateway is alive, because all were killed."""
    for folder in base.glob(f"{PREFIX}{os.getuid()}-*"):
        with suppress(OSError):
            _check_owner(folder)
            with locked_at_once(folder / DOCUMENT) as got:
                if got and _is_empty(folder):
                    shutil.rmtree(folder, ignore_errors=True)


def _check_owner(folder: Path) -> None:
    """Raise PermissionError unless the path is a folder of this user and no link."""
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise PermissionError(f"{folder} belongs to somebody else")


def _is_empty(folder: Path) -> bool:
    """Return whether no gateway is alive there; hold the lock."""
    return set(_ended(folder)) == {path.stem for path in folder.glob("*.alive")}


def _ended(folder: Path) -> Iterator[str]:
    """Yield the gateways whose process is gone; hold the lock."""
    for path in folder.glob("*.alive"):
        with locked_at_once(path) as got:
            if got:
                yield path.stem
