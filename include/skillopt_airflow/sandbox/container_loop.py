"""The loop over all sandboxes of one task, the same on every runtime.

Two threads store rows while containers still work, and end a container early where they have to.
"""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, suppress
from typing import Any, Protocol

from skillopt_airflow.core.config.resource_groups import SandboxGroup
from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.core.values.types import Item, ModelCall, Status, Trajectory
from skillopt_airflow.sandbox.docker.limits import MEGABYTE
from skillopt_airflow.sandbox.staging import ContainerFolder, Files, TaskFolder, staged
from skillopt_airflow.sandbox.task_workload import Outcome, SandboxSeconds, Workload, union_seconds
from skillopt_airflow.sandbox.untrusted_output import FileReader, TrajectoryReader, written_bytes

POLL_SECONDS = 0.5
STORE_SECONDS = 3.0
"""Seconds between two times that rows or calls are stored where nothing waits for them: each makes objects more."""

log = logging.getLogger(__name__)


class Watch:
    def __init__(
        self, items: Sequence[Item], folder: ContainerFolder, limits: SandboxGroup, kill: Callable[[], bool]
    ) -> None:
        ids = [item.id for item in items]
        self.ended: str | None = None
        """Reason why items are unfinished once the container has ended; empty if nothing is to be said of them."""
        self.recorded = threading.Event()
        """Set once nothing more is to come of it."""
        self._size = len(items)
        self._kill = kill
        self._killed = False
        self._folder = folder
        self._limits = limits
        self._deadline = math.inf
        self._stopped_for = ""
        self._ending = threading.Lock()
        self._rows = TrajectoryReader(folder.trajectories, ids)
        self._files = FileReader(folder.outputs, ids, limits.output_mb * MEGABYTE)

    def begin(self) -> None:
        self._deadline = time.monotonic() + self._limits.timeout

    def release(self, count: int) -> None:
        self._folder.release(count)

    def read(self) -> list[Outcome]:
        """Return what is new; a container in which items end has its time anew."""
        self._folder.fetch()
        found = [self._files.outcome(trajectory) for trajectory in self._rows.read()]
        if found:
            self._deadline = time.monotonic() + self._limits.timeout
        return found

    def check_lines(self) -> None:
        if self._rows.is_flooded:
            self._stop("it wrote too many lines that are no rows")

    def unfinished(self) -> list[Outcome]:
        """Return the rows of items that have none, now that the container has ended."""
        with self._ending:
            why = self._stopped_for or self.ended or ""
        missing = self._rows.missing if self.ended else ()
        if missing:
            log.warning("%d of the container's %d items are unfinished: %s", len(missing), self._size, why)
        return [Outcome(Trajectory(item_id=i, status=Status.SANDBOX_ERROR, error=why)) for i in missing]

    def check_time(self) -> None:
        """End a container in which no item ends for too long; to be called once what it wrote is read."""
        if time.monotonic() > self._deadline:
            self._stop(f"no item ended for {self._limits.timeout} s (sandbox.timeout)")

    def check_output(self) -> None:
        """End a container that writes too much; may be called from another thread than the rest."""
        most = self._limits.output_mb * MEGABYTE
        if self.ended is None and not self._stopped_for and written_bytes(self._folder.outputs, most) > most:
            self._stop(f"it wrote more than {self._limits.output_mb} MB (sandbox.output_mb)")

    def _stop(self, reason: str) -> None:
        with self._ending:
            if self.ended is None and not self._stopped_for and self.kill():
                self._stopped_for = f"the container was stopped: {reason}"

    def kill(self) -> bool:
        """End the container, unless that is done; return False if it has not begun yet."""
        self._killed = self._killed or self._kill()
        return self._killed


def _limit(check: Callable[[], None]) -> None:
    """End a container that is beyond a limit; if the engine cannot do it now, the next look tries again."""
    try:
        check()
    except Exception as error:  # noqa: BLE001 - of whatever engine, and the other containers would end with this one
        log.warning("A container beyond its limits could not be ended, which is tried again: %s", error)


class Watcher:
    """Between `start` and `stop` a thread of its own calls `workload.record`; after that, `finish` does.

    Another thread limits what containers write, because `record` may take as long as tests and other judges do.

    `stopped` is set when the task is stopped.
    """

    def __init__(self, workload: Workload, stopped: threading.Event) -> None:
        self._workload = workload
        self._stopped = stopped
        self._total = len(workload.items)
        self._watches: list[Watch] = []
        self._rows = 0
        self._found: list[Outcome] = []
        """What the containers wrote and is not recorded yet."""
        self._recorded = -math.inf
        """When something was recorded last, by the monotonic clock."""
        self._calls: list[ModelCall] = []
        """The calls that are not recorded yet; the gateway's thread adds to them."""
        self._refused: tuple[Sequence[Outcome], Sequence[ModelCall]] | None = None
        """What `record` was given last, if it raised."""
        self._intervals: list[tuple[float, float]] = []
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._threads = [
            threading.Thread(target=self._follow, name="watcher", daemon=True),
            threading.Thread(target=self._limit_output, name="output", daemon=True),
        ]
        self.settled = False
        """True once no further row matters, so that this thread ends the containers."""
        self.error: Exception | None = None
        """The error that `record` or `settled` raised, if one did."""

    @property
    def model_seconds(self) -> float:
        """Return the wall seconds in which at least one model call was under way."""
        return union_seconds(self._intervals)

    def on_call(self, call: ModelCall) -> None:
        self._calls.append(call)

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def is_over(self) -> bool:
        return self.settled or self.error is not None or self._stopped.is_set()

    def watch(self, items: Sequence[Item], folder: ContainerFolder, kill: Callable[[], bool]) -> Watch:
        watch = Watch(items, folder, self._workload.limits, kill)
        self._release(watch)
        self._watches.append(watch)
        return watch

    def end(self, watch: Watch, why_unfinished: str) -> None:
        """Return once all that an ended container wrote is recorded; its folder may be removed then.

        Items without a trajectory become sandbox_error, if there is a reason to give. Of a settled workload they are
        left out instead.
        """
        watch.ended = why_unfinished
        self._wake.set()
        watch.recorded.wait()

    def stop(self) -> None:
        """End the threads; from here on nobody else calls `record`."""
        self._stopping.set()
        self._wake.set()
        for thread in self._threads:
            thread.join()

    def finish(self) -> None:
        """Store the last rows and calls.

        Raises:
            Exception: what `record` or `settled` raised, now or in the thread.
        """
        # Of a stopped task the containers are gone, and that it was stopped is said already.
        if self.error is not None and not self._stopped.is_set():
            # What was read before is paid for.
            with suppress(Exception):
                self._store()
            raise self.error
        self._store()
        if self.settled:
            left = self._total - self._rows
            log.info("%d of %d items were left out: they can decide nothing any more", left, self._total)

    def _follow(self) -> None:
        while not self._stopping.is_set():
            self._wake.wait(POLL_SECONDS)
            self._wake.clear()
            if self.error is None:
                try:
                    self._look()
                except Exception as error:  # noqa: BLE001 - handed to the task's thread, where finish raises it
                    self.error = error
            if self.is_over():
                self._end_all()

    def _look(self) -> None:
        # Those that end from here on may still write, and are left to the next look.
        ended = [watch for watch in self._watches if watch.ended is not None]
        for watch in list(self._watches):
            # One by one: what was read of one container is kept if that of the next cannot be.
            self._found += watch.read()
        # The time in which these are judged is not the containers'.
        for watch in list(self._watches):
            _limit(watch.check_time)
            _limit(watch.check_lines)
        if ended or self._is_due():
            self._judge()
        if not self.settled and (left := [outcome for watch in ended for outcome in watch.unfinished()]):
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
                _limit(watch.check_output)

    def _release(self, watch: Watch) -> None:
        released = self._workload.released
        if released is not None and not self._workload.one_item_each:
            watch.release(released)

    def _is_due(self) -> bool:
        """Return whether what is new is to be recorded at once: it may decide which items begin, or it is time."""
        return self._workload.released is not None or time.monotonic() >= self._recorded + STORE_SECONDS

    def _judge(self) -> None:
        self._store()
        self.settled = self.settled or self._workload.settled()

    def _store(self) -> None:
        """Record what is new, after what `record` refused: that as it was, since some of it may be stored."""
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
        """End what still runs; called again and again, because a container may not have begun yet."""
        for watch in list(self._watches):
            if watch.ended is None:
                try:
                    watch.kill()
                except Exception as error:  # noqa: BLE001 - of whatever engine; without this thread the task would hang
                    log.warning("A container could not be ended, which is tried again: %s", error)
            elif self.error is not None:
                watch.recorded.set()


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

    def at_once(self) -> int: ...

    def serving(self, on_call: Callable[[ModelCall], None]) -> AbstractContextManager[Any]:
        """Serve the model to the sandboxes for as long as the block runs."""

    def sandbox(self, number: int, items: Sequence[Item], files: Files) -> AbstractContextManager[Sandbox]:
        """Stage the inputs of a sandbox, and remove all that belongs to it afterwards."""

    def remove_all(self) -> None: ...


def run_workload(
    workload: Workload, opened: Callable[[TaskFolder], AbstractContextManager[Runtime]], stopped: threading.Event
) -> SandboxSeconds:
    """Run the open items that still matter, record their rows as they come, and leave no sandbox behind.

    Args:
        opened: opens the runtime; not called if there is nothing to run.
        stopped: set when the task is stopped.

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
