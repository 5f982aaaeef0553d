"""The thread that stores rows while containers still work, and ends a container early where it has to.

A paced container waits for this thread after every few items, so rows are then looked for much more often.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable, Sequence

from skillopt_airflow.core.config import SandboxGroup
from skillopt_airflow.core.types import Item, ModelCall, Status, Trajectory
from skillopt_airflow.sandbox.collect import FileReader, TrajectoryReader, written_bytes
from skillopt_airflow.sandbox.hardening import MEGABYTE
from skillopt_airflow.sandbox.staging import Stage
from skillopt_airflow.sandbox.workload import Outcome, Workload, union_seconds

POLL_SECONDS = 2.0
PACED_POLL_SECONDS = 0.05

log = logging.getLogger(__name__)


class Watch:
    """One container, as the collector follows it."""

    def __init__(self, items: Sequence[Item], stage: Stage, limits: SandboxGroup, kill: Callable[[], bool]) -> None:
        ids = [item.id for item in items]
        self.size = len(items)
        self.ended: str | None = None
        """Why unfinished items are unfinished once the container has ended; empty if nothing is to be said of them."""
        self.recorded = threading.Event()
        """Set once nothing more is to come of it."""
        self._kill = kill
        self._killed = False
        self._stage = stage
        self._limits = limits
        self._deadline = time.monotonic() + limits.timeout
        self._stopped_for = ""
        self._rows = TrajectoryReader(stage.trajectories, ids)
        self._files = FileReader(stage.outputs, ids, limits.output_mb * MEGABYTE)

    @property
    def over(self) -> int:
        """Items that no longer hold up others: a refused line counts as well, for its item is over too."""
        return min(self._rows.lines, self.size)

    def read(self) -> list[Outcome]:
        """What is new."""
        self._stage.fetch()
        return [self._files.outcome(trajectory) for trajectory in self._rows.read()]

    def unfinished(self) -> list[Outcome]:
        """What is to be said of items without a row, now that the container has ended."""
        why = self._stopped_for or self.ended or ""
        missing = self._rows.missing if self.ended else ()
        if missing:
            log.warning("%d of the container's %d items are unfinished: %s", len(missing), self.size, why)
        return [Outcome(Trajectory(item_id=i, status=Status.SANDBOX_ERROR, error=why)) for i in missing]

    def check_limits(self) -> None:
        """End a container that takes too long or writes too much."""
        if self._stopped_for or self.ended is not None:
            return
        limits, reason = self._limits, ""
        most = limits.output_mb * MEGABYTE
        if time.monotonic() > self._deadline:
            reason = f"the container was stopped after {limits.timeout} s (sandbox.timeout)"
        elif written_bytes(self._stage.outputs, most) > most:
            reason = f"the container was stopped: it wrote more than {limits.output_mb} MB (sandbox.output_mb)"
        if reason and self.kill():
            self._stopped_for = reason

    def kill(self) -> bool:
        """End the container, unless that is done; False if it has not begun yet."""
        self._killed = self._killed or self._kill()
        return self._killed


class Collector:
    """Between `start` and `stop` a thread of its own calls `workload.record`; after that, `finish` does.

    `allow` tells a paced container how many items it may begin; `stopped` is set when the task is stopped.
    """

    def __init__(self, workload: Workload, allow: Callable[[int], None], stopped: threading.Event) -> None:
        self._workload = workload
        self._allow = allow
        self._stopped = stopped
        self._total = len(workload.items)
        self._watches: list[Watch] = []
        self._over = 0
        """Items of containers that have ended."""
        self._rows = 0
        self._calls: queue.SimpleQueue[ModelCall] = queue.SimpleQueue()
        self._intervals: list[tuple[float, float]] = []
        self._stopping = False
        self._wake = threading.Event()
        self._allowance = threading.Condition()
        self._thread = threading.Thread(target=self._follow, name="collector", daemon=True)
        self._next_look = time.monotonic() + POLL_SECONDS
        self._paced = workload.pace is not None
        self._allowed = 0
        self.settled = False
        """Whether no further row matters, so that this thread ends the containers."""
        self.error: Exception | None = None
        """What `record` or `settled` raised, if one did."""

    @property
    def model_seconds(self) -> float:
        """Wall seconds in which at least one model call was under way."""
        return union_seconds(self._intervals)

    def on_call(self, call: ModelCall) -> None:
        """Take a call from the gateway's thread."""
        self._calls.put(call)

    def start(self) -> None:
        """Begin to follow the containers' output."""
        if self._workload.pace is not None:
            self._set_allowed(self._workload.pace)
        self._thread.start()

    def admit(self, number: int) -> bool:
        """Wait until the paced item `number`, counted from 0, may begin; False if it need not."""
        with self._allowance:
            self._allowance.wait_for(lambda: not self._paced or number < self._allowed or self._is_over())
        return not self._is_over()

    def watch(self, items: Sequence[Item], stage: Stage, kill: Callable[[], bool]) -> Watch:
        """Follow a container that is about to start; its time runs from now on."""
        watch = Watch(items, stage, self._workload.limits, kill)
        self._watches.append(watch)
        return watch

    def end(self, watch: Watch, why_unfinished: str) -> None:
        """Return once all that an ended container wrote is recorded; its stage may be removed then.

        Items without a trajectory become sandbox_error, if there is a reason to give. Of a settled workload they are
        left out instead.
        """
        watch.ended = why_unfinished
        self._wake.set()
        watch.recorded.wait()

    def stop(self) -> None:
        """End the thread; from here on nobody else calls `record`."""
        self._stopping = True
        self._wake.set()
        self._thread.join()

    def finish(self) -> None:
        """Store the last calls.

        Raises:
            Exception: what `record` or `settled` raised, now or in the thread.
        """
        # Of a stopped task the containers are gone, and that it was stopped is said already.
        if self.error is not None and not self._stopped.is_set():
            raise self.error
        self._store([], with_calls=True)
        if self.settled:
            left = self._total - self._rows
            log.info("%d of %d items were left out: no win is possible any more", left, self._total)

    def _follow(self) -> None:
        pause = PACED_POLL_SECONDS if self._paced else POLL_SECONDS
        while not self._stopping:
            self._wake.wait(pause)
            self._wake.clear()
            if self.error is None:
                try:
                    self._look()
                except Exception as error:  # noqa: BLE001 - handed to the task's thread, where finish raises it
                    self.error = error
            if self._is_over():
                self._end_all()

    def _look(self) -> None:
        due = self._is_due()
        # Those that end from here on may still write, and are left to the next look.
        ended = [watch for watch in self._watches if watch.ended is not None]
        outcomes = [outcome for watch in list(self._watches) for outcome in watch.read()]
        if not self.settled:
            outcomes += [outcome for watch in ended for outcome in watch.unfinished()]
        self._store(outcomes, with_calls=due)
        for watch in ended:
            self._over += watch.size
            self._watches.remove(watch)
            watch.recorded.set()
        if not self.settled:
            self._steer(ask=bool(outcomes) or due)
        if due:
            for watch in list(self._watches):
                watch.check_limits()

    def _is_due(self) -> bool:
        """Whether it is time for what is not done at every look for a paced container's rows."""
        now = time.monotonic()
        if now < self._next_look:
            return False
        self._next_look = now + POLL_SECONDS
        return True

    def _steer(self, *, ask: bool) -> None:
        """Let paced items go on, unless they need not."""
        if self._workload.pace is None:
            return
        if ask and self._workload.settled():
            self.settled = True
            return
        over = self._over + sum(watch.over for watch in list(self._watches))
        self._set_allowed(over + self._workload.pace)

    def _set_allowed(self, items: int) -> None:
        if items == self._allowed:
            return
        self._allow(items)
        with self._allowance:
            self._allowed = items
            self._allowance.notify_all()

    def _store(self, outcomes: Sequence[Outcome], *, with_calls: bool) -> None:
        """Record what is new, calls without rows only if asked to."""
        if not (outcomes or with_calls):
            return
        calls = [self._calls.get() for _ in range(self._calls.qsize())]
        self._intervals += [(call.started, call.started + call.seconds) for call in calls]
        if outcomes or calls:
            self._workload.record(outcomes, calls)
            self._rows += len(outcomes)
            log.info("%d of %d items", self._rows, self._total)

    def _is_over(self) -> bool:
        return self.settled or self.error is not None or self._stopped.is_set()

    def _end_all(self) -> None:
        """Nothing of what still runs matters; asked again and again, for a container may not have begun yet."""
        for watch in list(self._watches):
            if watch.ended is None:
                watch.kill()
            elif self.error is not None:
                watch.recorded.set()
        with self._allowance:
            self._allowance.notify_all()
