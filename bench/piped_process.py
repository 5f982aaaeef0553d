"""A function in a separate process with a pipe."""

import multiprocessing
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection


@contextmanager
def piped(target: Callable[..., None], *arguments: object) -> Iterator[Connection]:
    """Run a function in a separate process with a pipe as its first argument, until the pipe closes."""
    context = multiprocessing.get_context("spawn")
    mine, its = context.Pipe()
    process = context.Process(target=target, args=(its, *arguments))
    process.start()
    its.close()
    try:
        yield mine
    finally:
        mine.close()
        process.join()
