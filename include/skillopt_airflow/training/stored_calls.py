"""The calls of a task's models, stored while it runs: one that is killed has paid for them, and left its answers."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from skillopt_airflow.core.errors import StoreError
from skillopt_airflow.core.timeline import Moment
from skillopt_airflow.core.types import ModelCall
from skillopt_airflow.sandbox.watcher import STORE_SECONDS
from skillopt_airflow.training.run import TrainingRun

log = logging.getLogger(__name__)


@contextmanager
def stored_calls(run: TrainingRun, moment: Moment) -> Iterator[list[ModelCall]]:
    """Yield a list to which calls may be added from any thread; each is stored soon, and all are when the block ends.

    Raises:
        StoreError: the last ones cannot be stored.
    """
    calls: list[ModelCall] = []
    part: list[ModelCall] = []
    stored, ended = 0, Event()

    def store() -> None:
        nonlocal part, stored
        if not part:
            part = calls[stored:]
        # One whose writing had no answer stays as it is, since it may be there.
        run.usage.append(run.ref.benchmark, run.ref.run, part, moment)
        stored, part = stored + len(part), []

    def follow() -> None:
        while not ended.wait(STORE_SECONDS):
            try:
                store()
            except StoreError as error:
                log.warning("The calls of the last seconds could not be stored, which is tried again: %s", error)

    thread = Thread(target=follow, name="stored-calls", daemon=True)
    thread.start()
    try:
        yield calls
    finally:
        ended.set()
        thread.join()
        while stored < len(calls):
            store()
