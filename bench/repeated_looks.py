"""Repeated polling while a block runs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def polling(poll: Callable[[], None], seconds: float) -> Iterator[None]:
    """Call `poll` every `seconds` in a thread until the block ends, and once more afterwards."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(seconds):
            poll()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        poll()
