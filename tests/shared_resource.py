"""An engine or a platform that several test processes use at the same time: the first starts it, the last ends it."""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def shared(folder: Path, start: Callable[[], bool], stop: Callable[[], None]) -> Iterator[None]:
    """Use what belongs to a folder; `start` is called by every user and tells whether it is the tests' to stop."""
    folder.mkdir(parents=True, exist_ok=True)
    started = folder / "tests.started"
    with (folder / "tests.users").open("a") as users:
        with alone(folder):
            fcntl.flock(users, fcntl.LOCK_SH)
            if start():
                started.touch()
        try:
            yield
        finally:
            with alone(folder):
                if _is_last(users.fileno()) and started.exists():
                    stop()
                    started.unlink()


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Keep the other users of the folder waiting."""
    with (folder / "tests.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _is_last(users: int) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
