"""The loop over all sandboxes of one task, the same on every runtime."""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

from skillopt_airflow.core.config.resource_groups import SandboxGroup
from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.core.values.types import Item, ModelCall, Status, Trajectory
from skillopt_airflow.sandbox.docker.limits import MEGABYTE
from skillopt_airflow.sandbox.staging import ContainerFolder, Files, temporary_folder
from skillopt_airflow.sandbox.task_workload import Outcome, SandboxSeconds, Workload, union_seconds
from skillopt_airflow.sandbox.untrusted_output import FileReader, TrajectoryReader, written_bytes

POLL_SECONDS = 0.5
STORE_SECONDS = 3.0
"""Interval of storing rows and calls while nothing waits for them; each time adds objects to the store."""

log = logging.getLogger(__name__)


class Watch:
    def __init__(
        self, items: Sequence[Item], folder: ContainerFolder, limits: SandboxGroup, kill: Callable[[], bool]
    ) -> None:
        ids = [item.id for item in items]
        self.folder = folder
        self.ended: str | None = None
        """Reason why items are unfinished, once the container has ended; if empty, they get no rows."""
        self.recorded = threading.Event()
        self._size = len(items)
        self._kill = kill
        self._killed = False
        self._limits = limits
        self._deadline = math.inf
        self._stopped_for = ""
        self._ending = threading.Lock()
        self._rows = TrajectoryReader(folder.trajectories, ids)
        self._files = FileReader(folder.outputs, ids, limits.output_mb * MEGABYTE)

    def begin(self) -> None:
        self._deadline = time.monotonic() + self._limits.timeout

    def read(self) -> list[Outcome]:
        """Return the new outcomes; if there are any, the timeout starts again."""
        self.folder.fetch()
        outcomes = [self._files.outcome(trajectory) for trajectory in self._rows.read()]
        if outcomes:
            self._deadline = time.monotonic() + self._limits.timeout
        return outcomes

    def unfinished(self) -> list[Outcome]:
        """Return an outcome for each item without a row; called once the container has ended."""
        with self._ending:
            why = self._stopped_for or self.ended or ""
        missing = self._rows.missing if self.ended else ()
        if missing:
            log.warning("%d of the container's %d items are unfinished: %s", len(missing), self._size, why)
        return [Outcome(Trajectory(item_id=i, status=Status.SANDBOX_ERROR, error=why)) for i in missing]

    def check_rows(self) -> None:
        """End a container that is too slow or writes invalid rows; called after `read`, which extends the deadline."""
        if time.monotonic() > self._deadline:
            self._stop(f"no item ended for {self._limits.timeout} s (sandbox.timeout)")
        if self._rows.is_flooded:
            self._stop("it wrote too many invalid rows")

    def check_output(self) -> None:
        """End a container that writes too much; safe to call from another thread."""
        limit = self._limits.output_mb * MEGABYTE
        if self.ended is None and not self._stopped_for and written_bytes(self.folder.outputs, limit) > limit:
            self._stop(f"it wrote more than {self._limits.output_mb} MB (sandbox.output_mb)")

    def _stop(self, reason: str) -> None:
        with self._ending:
            if self.ended is None and not self._stopped_for and self.kill():
                self._stopped_for = f"the container was stopped: {reason}"

    def kill(self) -> bool:
        """End the container once; return False if it hasn't started yet."""
        self._killed = self._killed or self._kill()
        return self._killed


def _try_to_end(end: Callable[[], object]) -> None:
    try:
        end()
    except Exception as error:  # noqa: BLE001 - any engine's error; raising it would end this thread
        log.warning("A container could not be ended; trying again: %s", error)


class Watcher:
    """Calls `workload.record` from its own thread while it runs; after that, `finish` does.

    A second thread limits the containers' output, because `record` may wait for tests and judge models.
    """

    def __init__(self, workload: Workload, stopped: threading.Event) -> None:
        self._workload = workload
        self._stopped = stopped
        self._total = len(workload.items)
        self._watches: list[Watch] = []
        self._rows = 0
        self._found: list[Outcome] = []
        """Outcomes that aren't recorded yet."""
        self._recorded = -math.inf
        """Time of the last `record`, by the monotonic clock."""
        self._calls: list[ModelCall] = []
        """Calls that aren't recorded yet; the gateway's thread appends to it."""
        self._refused: tuple[Sequence[Outcome], Sequence[ModelCall]] | None = None
        """Arguments of the last `record`, if it raised."""
        self._intervals: list[tuple[float, float]] = []
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._threads = [
            threading.Thread(target=self._follow, name="watcher", daemon=True),
            threading.Thread(target=self._limit_output, name="output", daemon=True),
        ]
        self.is_decided = False
        """True once no further row matters, so this thread ends the containers."""
        self.error: Exception | None = None
        """Error that `record` or `is_decided` raised."""

    @property
    def model_seconds(self) -> float:
        return union_seconds(self._intervals)

    def on_call(self, call: ModelCall) -> None:
        self._calls.append(call)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Run the threads within the block; after it, only `finish` calls `record`."""
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            self._wake.set()
            for thread in self._threads:
                thread.join()

    def is_over(self) -> bool:
        return self.is_decided or self.error is not None or self._stopped.is_set()

    def watch(self, items: Sequence[Item], folder: ContainerFolder, kill: Callable[[], bool]) -> Watch:
        watch = Watch(items, folder, self._workload.limits, kill)
        self._release(watch)
        self._watches.append(watch)
        return watch

    def end(self, watch: Watch, why_unfinished: str) -> None:
        """Wait until all rows of an ended container are recorded, so that its folder can be removed.

        If there is a reason, items without a trajectory become sandbox_error, except in a decided workload.
        """
        watch.ended = why_unfinished
        self._wake.set()
        watch.recorded.wait()

    def finish(self) -> None:
        """Store the last rows and calls, and raise the thread's error."""
        # If the task was stopped, its containers are gone, and the caller raises that instead.
        if self.error is not None and not self._stopped.is_set():
            # Rows that were read before the error are paid for.
            with suppress(Exception):
                self._store()
            raise self.error
        self._store()
        if self.is_decided:
            left = self._total - self._rows
            log.info("%d of %d items were left out: they can no longer change the decision", left, self._total)

    def _follow(self) -> None:
        while not self._stopping.is_set():
            self._wake.wait(POLL_SECONDS)
            self._wake.clear()
            if self.error is None:
                try:
                    self._poll()
                except Exception as error:  # noqa: BLE001 - `finish` raises it in the task's thread
                    self.error = error
            if self.is_over():
                self._end_all()

    def _poll(self) -> None:
        # Containers that end after this line may still write; the next poll handles them.
        ended = [watch for watch in self._watches if watch.ended is not None]
        for watch in list(self._watches):
            # One by one, so that an unreadable container doesn't lose the rows of those before it.
            self._found += watch.read()
        # Before scoring, whose time doesn't count toward the containers' timeouts.
        for watch in list(self._watches):
            _try_to_end(watch.check_rows)
        # New rows may decide which items start next.
        if ended or self._workload.released is not None or time.monotonic() >= self._recorded + STORE_SECONDS:
            self._judge()
        if not self.is_decided and (left := [outcome for watch in ended for outcome in watch.unfinished()]):
            self._found += left
            self._judge()
        for watch in ended:
            self._watches.remove(watch)
            watch.recorded.set()
        for watch in list(self._watches):
            self._release(watch)

    def _limit_output(self) -> None:
        while not self._stopping.wait(POLL_SECONDS):
            for watch in list(self._watches):
                _try_to_end(watch.check_output)

    def _release(self, watch: Watch) -> None:
        released = self._workload.released
        if released is not None and not self._workload.one_item_each:
            watch.folder.release(released)

    def _judge(self) -> None:
        self._store()
        self.is_decided = self.is_decided or self._workload.is_decided()

    def _store(self) -> None:
        # A refused `record` is repeated with the same arguments, because some of its rows may be stored.
        if self._refused is not None:
            self._record(*self._refused)
        outcomes, calls = self._found, [*self._calls]
        self._found = []
        del self._calls[: len(calls)]
        self._intervals += [(call.started, call.started + call.seconds) for call in calls]
        if outcomes or calls:
            self._record(outcomes, calls)

    def _record(self, outcomes: Sequence[Outcome], calls: Sequence[ModelCall]) -> None:
        self._refused = outcomes, calls
        self._workload.record(outcomes, calls)
        self._refused = None
        self._recorded = time.monotonic()
        self._rows += len(outcomes)
        log.info("%d of %d items", self._rows, self._total)

    def _end_all(self) -> None:
        """Kill all running containers; called repeatedly, because some may not have started yet."""
        for watch in list(self._watches):
            if watch.ended is None:
                _try_to_end(watch.kill)
            elif self.error is not None:
                watch.recorded.set()


class Sandbox(Protocol):
    """One container or pod of the rollout program."""

    @property
    def folder(self) -> ContainerFolder:
        """The worker's view of the sandbox's folders."""

    def run(self, on_start: Callable[[], None]) -> str:
        """Create it, call `on_start` once it runs, and return the reason why items without a row are unfinished.

        Raises SandboxError if the engine refused it, or the task was stopped.
        """

    def kill(self) -> bool:
        """End it, from another thread; return False if it hasn't started yet."""


class Runtime(Protocol):
    """The engine or cluster that runs the sandboxes of one task."""

    def at_once(self) -> int: ...

    def serving(self, on_call: Callable[[ModelCall], None]) -> AbstractContextManager[Any]:
        """Serve the model to the sandboxes while the block runs."""

    def sandbox(self, number: int, items: Sequence[Item], files: Files) -> AbstractContextManager[Sandbox]:
        """Stage a sandbox's inputs, and remove everything of the sandbox afterwards."""

    def remove_all(self) -> None: ...


def run_workload(
    workload: Workload, open_runtime: Callable[[Path], AbstractContextManager[Runtime]], stopped: threading.Event
) -> SandboxSeconds:
    """Run the open items that still matter, record their rows as they arrive, and remove all sandboxes.

    Raises SandboxError if the engine refused a sandbox, or the task was stopped, which sets `stopped`.
    """
    try:
        return _run(workload, open_runtime, stopped)
    finally:
        workload.release_budget()


def _run(
    workload: Workload, open_runtime: Callable[[Path], AbstractContextManager[Runtime]], stopped: threading.Event
) -> SandboxSeconds:
    if not workload.items or workload.is_decided():
        log.info("No container is needed: the %d open items can't change the decision", len(workload.items))
        return SandboxSeconds(wall=0.0, model=0.0)
    clock = time.monotonic()
    with temporary_folder() as folder, open_runtime(folder) as runtime:
        watcher = Watcher(workload, stopped)
        try:
            with runtime.serving(watcher.on_call), watcher.running():
                _run_all(runtime, workload, watcher, stopped)
        finally:
            watcher.finish()
        return SandboxSeconds(wall=time.monotonic() - clock, model=watcher.model_seconds)


def _run_all(runtime: Runtime, workload: Workload, watcher: Watcher, stopped: threading.Event) -> None:
    reading, items = threading.Lock(), workload.items
    containers = [[item] for item in items] if workload.one_item_each else [items]

    def read(items: Sequence[Item]) -> Files:
        # One item at a time: the files of all items may not fit into memory.
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
        raise SandboxError("the task was stopped, and its sandboxes were removed")
