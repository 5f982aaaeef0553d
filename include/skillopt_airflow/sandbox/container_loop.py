"""The loop over all sandboxes of one task, the same on every runtime."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager
from typing import Any, Protocol

from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.core.types import Item, ModelCall
from skillopt_airflow.sandbox.staging import ContainerFolder, Files, TaskFolder, staged
from skillopt_airflow.sandbox.task_workload import SandboxSeconds, Workload
from skillopt_airflow.sandbox.watcher import Watcher

log = logging.getLogger(__name__)


class Sandbox(Protocol):
    """One container or pod of the rollout program."""

    @property
    def folder(self) -> ContainerFolder:
        """The worker's side of its folders."""

    def run(self, on_start: Callable[[], None]) -> str:
        """Create it, call `on_start` once it runs, and return why items that have no row when it ends are unfinished.

        Raises:
            SandboxError: of the kind that says what the engine refused, or that the task was stopped.
        """

    def kill(self) -> bool:
        """End it, from another thread; return False if it has not begun yet."""


class Runtime(Protocol):
    """The engine or cluster that runs the sandboxes of one task."""

    def at_once(self) -> int:
        """Return how many sandboxes of the task may run at the same time."""

    def serving(self, on_call: Callable[[ModelCall], None]) -> AbstractContextManager[Any]:
        """Serve the model to the sandboxes for as long as the block runs."""

    def sandbox(self, number: int, items: Sequence[Item], files: Files) -> AbstractContextManager[Sandbox]:
        """Stage the inputs of a sandbox, and remove all that belongs to it afterwards."""

    def remove_all(self) -> None:
        """Remove every sandbox of the task."""


def run_workload(
    workload: Workload, opened: Callable[[TaskFolder], AbstractContextManager[Runtime]], stopped: threading.Event
) -> SandboxSeconds:
    """Run the open items that still matter, record their rows as they come, and leave no sandbox behind.

    Args:
        workload: what is to run.
        opened: opens the runtime; not called if there is nothing to run.
        stopped: set when the task is stopped, by whoever stops it.

    Raises:
        SandboxError: of the kind that says what the engine refused, or that the task was stopped.
    """
    try:
        return _run(workload, opened, stopped)
    finally:
        workload.settle()


def _run(
    workload: Workload, opened: Callable[[TaskFolder], AbstractContextManager[Runtime]], stopped: threading.Event
) -> SandboxSeconds:
    if not workload.items:
        log.info("Every item has a stored row; no container is needed")
        return SandboxSeconds(wall=0.0, model=0.0)
    if workload.settled():
        log.info("All %d open items were left out: they can decide nothing any more", len(workload.items))
        return SandboxSeconds(wall=0.0, model=0.0)
    clock = time.monotonic()
    with staged() as folder, opened(folder) as runtime:
        watcher = Watcher(workload, stopped)
        try:
            with runtime.serving(watcher.on_call):
                watcher.start()
                try:
                    _run_all(runtime, workload, watcher, stopped)
                finally:
                    watcher.stop()
        finally:
            watcher.finish()
        return SandboxSeconds(wall=time.monotonic() - clock, model=watcher.model_seconds)


def _run_all(runtime: Runtime, workload: Workload, watcher: Watcher, stopped: threading.Event) -> None:
    reading, items = threading.Lock(), workload.items
    containers = [[item] for item in items] if workload.one_item_each else [items]

    def read(items: Sequence[Item]) -> Files:
        # One after the other: the files of all would not fit into memory.
        for item in items:
            with reading:
                contents = workload.files(item)
            yield contents

    def run_one(number: int, items: Sequence[Item]) -> None:
        if watcher.is_over():
            return
        with runtime.sandbox(number, items, read(items)) as sandbox:
            watch = watcher.watch(items, sandbox.folder, sandbox.kill)
            why = ""
            try:
                why = sandbox.run(watch.begin)
            finally:
                sandbox.folder.ended = True
                watcher.end(watch, why)

    with ThreadPoolExecutor(runtime.at_once(), thread_name_prefix="sandbox") as pool:
        try:
            running = [pool.submit(run_one, number, items) for number, items in enumerate(containers)]
            for future in wait(running, return_when=FIRST_EXCEPTION).done:
                future.result()
        except BaseException:
            stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            runtime.remove_all()
            raise
    if stopped.is_set():
        raise SandboxError("the task was stopped, and its sandboxes removed")
