"""State that the gateways of one run share: the rate limit of each server and the remaining budget.

A run's containers belong to different task processes. Those on one host meet in a folder of the host's temporary
folder: a JSON document that is replaced as a whole under a lock, and a locked file for each gateway that lives, so that
the kernel itself tells when one was killed. Gateways on other hosts are not seen: each host finds its own pace, and
learns what the others spent when a task reads the usage table.
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
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import TypeVar
from uuid import uuid4

from pydantic import Field, ValidationError

from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.core.types import Value
from skillopt_airflow.gateway.rate_limit import RateLimit
from skillopt_airflow.gateway.remaining_budget import RemainingBudget

Result = TypeVar("Result")

PREFIX = "skillopt-gateways-"
LOCK_SECONDS = 0.002
CENSUS_SECONDS = 1.0
"""Between two looks for gateways that were killed."""


class State(Value):
    """The shared values."""

    limits: Mapping[str, RateLimit] = Field(default_factory=dict)
    """Limits by server, which is a connection, an address and a model."""
    budget: RemainingBudget = RemainingBudget()

    def limit(self, server: str) -> RateLimit:
        """Return the server's limit; a new one if nobody used it yet."""
        return self.limits.get(server, RateLimit())

    def spent(self, *, calls: int = 0, prompt_tokens: int = 0, completion_tokens: int = 0) -> "State":
        """Return the state after so much more was spent."""
        left = self.budget.minus(calls=calls, prompt_tokens=prompt_tokens, completion_tokens=completion_tokens)
        return self.model_copy(update={"budget": left})

    def without(self, gone: frozenset[str]) -> "State":
        """Return the state without what gateways that are gone held."""
        limits = {
            name: limit.model_copy(update={"busy": {who: n for who, n in limit.busy.items() if who not in gone}})
            for name, limit in self.limits.items()
        }
        return self.model_copy(update={"limits": limits})


class SharedState:
    """State that gateways share; `me` is this one, which is the only one in this class."""

    me = "alone"

    def __init__(self, budget: RemainingBudget) -> None:
        self._state = State(budget=budget)

    async def update(self, change: Callable[[State], tuple[State, Result]]) -> Result:
        """Replace the state by what `change` makes of it, nobody coming between, and return its result."""
        self._state, result = change(self._state)
        return result

    async def update_limit(self, server: str, change: Callable[[RateLimit], tuple[RateLimit, Result]]) -> Result:
        """Do the same with one server's limit."""

        def changed(state: State) -> tuple[State, Result]:
            limit, result = change(state.limit(server))
            return state.model_copy(update={"limits": {**state.limits, server: limit}}), result

        return await self.update(changed)


class _OnHost(SharedState):
    """State in a folder of the host; see `shared`."""

    def __init__(self, folder: Path, me: str) -> None:
        self.me = me
        self._folder = folder
        self._next_census = 0.0
        self._queue = asyncio.Lock()

    async def update(self, change: Callable[[State], tuple[State, Result]]) -> Result:
        """Replace the state; what killed gateways held becomes free after a second."""
        async with self._queue, _locked(self._folder / "lock"):
            before = self._read()
            if time.monotonic() >= self._next_census:
                before = before.without(self._bury())
                self._next_census = time.monotonic() + CENSUS_SECONDS
            after, result = change(before)
            if after != before:
                self._write(after)
        return result

    def join(self, budget: RemainingBudget, *, alone: bool) -> None:
        """Add the budget that this gateway was given; hold the lock."""
        state = self._read()
        left = budget if alone else budget.least(state.budget)
        self._write(state.model_copy(update={"budget": left}))

    def _bury(self) -> frozenset[str]:
        gone = frozenset(_ended(self._folder))
        for gateway in gone:
            (self._folder / f"{gateway}.alive").unlink()
        return gone

    def _read(self) -> State:
        try:
            return State.model_validate_json((self._folder / "state.json").read_bytes())
        except (FileNotFoundError, ValidationError):
            return State()

    def _write(self, state: State) -> None:
        unfinished = self._folder / "state.new"
        unfinished.write_text(state.model_dump_json(), encoding="utf-8")
        unfinished.replace(self._folder / "state.json")


@asynccontextmanager
async def shared(run: str, budget: RemainingBudget) -> AsyncIterator[SharedState]:
    """Yield the state of all gateways with the same `run`; an empty name shares nothing.

    Each gateway brings what was left when its task began; the smallest amount holds, because none of them has seen what
    the others spent since.

    Raises:
        SandboxError: the host's temporary folder cannot be written, or somebody else made the folder.
    """
    if not run:
        yield SharedState(budget)
        return
    me = uuid4().hex
    try:
        folder, mine = await _join(run, me, budget)
    except OSError as error:
        raise SandboxError(f"the model gateways cannot meet below {tempfile.gettempdir()}: {error}") from error
    try:
        yield _OnHost(folder, me)
    finally:
        await _leave(folder, mine)


async def _join(run: str, me: str, budget: RemainingBudget) -> tuple[Path, int]:
    """Return the folder and the descriptor whose lock shows that this gateway is alive."""
    base = Path(tempfile.gettempdir())
    _sweep(base)
    digest = hashlib.sha256(run.encode()).hexdigest()[:24]
    folder = base / f"{PREFIX}{os.getuid()}-{digest}"
    while True:
        folder.mkdir(mode=0o700, exist_ok=True)
        _check_owner(folder)
        # The last gateway to leave removes the folder; whoever runs into that starts again.
        with suppress(FileNotFoundError):
            async with _locked(folder / "lock"):
                alone = _is_empty(folder)
                mine = os.open(folder / f"{me}.alive", os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
                fcntl.flock(mine, fcntl.LOCK_EX)
                _OnHost(folder, me).join(budget, alone=alone)
                return folder, mine


async def _leave(folder: Path, mine: int) -> None:
    with suppress(FileNotFoundError):
        async with _locked(folder / "lock"):
            os.close(mine)
            if _is_empty(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _sweep(base: Path) -> None:
    """Remove this user's folders in which no gateway is alive, because all were killed."""
    for folder in base.glob(f"{PREFIX}{os.getuid()}-*"):
        with suppress(OSError):
            _check_owner(folder)
            with _at_once(folder / "lock") as got:
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
        with _at_once(path) as got:
            if got:
                yield path.stem


@contextmanager
def _at_once(path: Path) -> Iterator[bool]:
    """Yield whether the file's lock was free; it is held during the block."""
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        yield _try_lock(descriptor)
    finally:
        os.close(descriptor)


@asynccontextmanager
async def _locked(path: Path) -> AsyncIterator[None]:
    """Hold the file's lock, without blocking the event loop while waiting for it.

    Raises:
        FileNotFoundError: the folder is being removed.
    """
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        while not _try_lock(descriptor):
            await asyncio.sleep(LOCK_SECONDS)
        if os.fstat(descriptor).st_nlink == 0:
            raise FileNotFoundError(path)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
