"""A look at something every so often while a block runs."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def looking(look: Callable[[], None], seconds: float) -> Iterator[None]:
    """Look in a thread of its own, with so many seconds between two looks, until the block ends, and once more then."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(seconds):
            look()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
        look()
