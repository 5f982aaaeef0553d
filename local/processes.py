"""Finding and ending the processes of one platform.

There are no pid files to lose: each process has the platform's home in its environment, and PostgreSQL, which
overwrites that memory, runs in its data directory.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import psutil

from local.environment import HOME_VARIABLE
from local.home import Home

ENGINE_NAMES = ("dockerd", "containerd", "docker-proxy", "runc")
POLL_SECONDS = 0.05


def of_home(home: Home) -> list[psutil.Process]:
    """Return the platform's processes, except the caller, its parents, PostgreSQL, and the engine."""
    excluded = {process.pid for process in (psutil.Process(), *psutil.Process().parents())}
    return [
        process
        for process in psutil.process_iter()
        if process.pid not in excluded and variable(process, HOME_VARIABLE) == str(home.root) and not _is_other(process)
    ]


def of_postgres(home: Home) -> list[psutil.Process]:
    return [process for process in psutil.process_iter() if _works_in(process, home)]


def of_engine(home: Path) -> list[psutil.Process]:
    return [
        process
        for process in psutil.process_iter()
        if variable(process, HOME_VARIABLE) == str(home) and _is_named(process, ENGINE_NAMES)
    ]


def with_children(parents: Iterable[psutil.Process]) -> list[psutil.Process]:
    """Return processes, each after its children."""
    found = []
    for parent in parents:
        with suppress(psutil.NoSuchProcess):
            found += [*parent.children(), parent]
    return found


def variable(process: psutil.Process, name: str) -> str:
    return variables(process).get(name, "")


def variables(process: psutil.Process) -> dict[str, str]:
    """Return the initial environment of a process; empty if it can't be read."""
    try:
        return dict(process.environ())
    except (psutil.Error, OSError, ValueError):
        return {}


def is_alive(process: psutil.Process) -> bool:
    """Return False for zombies."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def end(processes: Iterable[psutil.Process], grace: float) -> None:
    """Send SIGTERM to all, and SIGKILL to those that still run after `grace` seconds."""
    pending = list(_signal(processes, psutil.Process.terminate))
    if not _all_gone(pending, grace):
        kill(pending, grace)


def kill(processes: Iterable[psutil.Process], seconds: float) -> None:
    """Send SIGKILL to all, and wait at most `seconds`."""
    _all_gone(list(_signal(processes, psutil.Process.kill)), seconds)


def _signal(processes: Iterable[psutil.Process], send: Callable[[psutil.Process], None]) -> Iterator[psutil.Process]:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            send(process)
            yield process


def _all_gone(processes: Iterable[psutil.Process], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    pending = [process for process in processes if is_alive(process)]
    while pending and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
        pending = [process for process in pending if is_alive(process)]
    return not pending


def _is_other(process: psutil.Process) -> bool:
    return _is_named(process, ("postgres", *ENGINE_NAMES))


def _is_named(process: psutil.Process, prefixes: tuple[str, ...]) -> bool:
    """Also return True if the process is gone."""
    try:
        return bool(process.name().startswith(prefixes))
    except psutil.Error:
        return True


def _works_in(process: psutil.Process, home: Home) -> bool:
    try:
        return bool(process.name() == "postgres" and process.cwd() == str(home.postgres))
    except (psutil.Error, OSError):
        return False
