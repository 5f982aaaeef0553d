"""The thread that stores rows while the container still works, and ends a container early where it has to.

A paced container waits for this thread after every few items, so rows are then looked for much more often.
"""

import logging
import queue
import threading
import time
from collections.abc import Callable

from include.core.config import SandboxGroup
from include.core.types import ModelCall, Status, Trajectory
from include.sandbox.collect import TrajectoryReader, written_bytes
from include.sandbox.hardening import MEGABYTE
from include.sandbox.staging import Stage, allow
from include.sandbox.workload import Outcome, Workload, union_seconds

POLL_SECONDS = 2.0
PACED_POLL_SECONDS = 0.05

log = logging.getLogger(__name__)


class Collector:
    """Between `start` and `stop` a thread of its own calls `workload.record`; after that, `finish` does."""

    def __init__(self, workload: Workload, stage: Stage, kill: Callable[[], bool]) -> None:
        self._workload = workload
        self._stage = stage
        self._kill = kill
        self._reader = TrajectoryReader(stage.trajectories, [item.id for item in workload.items])
        self._calls: queue.SimpleQueue[ModelCall] = queue.SimpleQueue()
        self._intervals: list[tuple[float, float]] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="collector", daemon=True)
        self._deadline = time.monotonic() + workload.limits.timeout
        self._next_look = time.monotonic() + POLL_SECONDS
        self._paced = workload.pace is not None
        self._allowed = workload.pace
        self.ended_by: str = ""
        """Which limit made this thread end the container, or empty."""
        self.settled = False
        """Whether this thread ended the container because no further row matters."""
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
        """Begin to follow the container's output."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread; from here on nobody else calls `record`."""
        self._stopping.set()
        self._thread.join()

    def finish(self, why_unfinished: str) -> None:
        """Store what is left; items without a trajectory become sandbox_error, if there is a reason to give.

        Of a settled workload they are left out instead.

        Raises:
            Exception: what `record` or `settled` raised, now or in the thread.
        """
        if self.error is not None:
            raise self.error
        self._flush()
        missing = self._reader.missing if why_unfinished else ()
        total = len(self._workload.items)
        if missing and self.settled:
            log.info("%d of %d items were left out: no win is possible any more", len(missing), total)
        elif missing:
            log.warning("%d of %d items are unfinished: %s", len(missing), total, why_unfinished)
            errors = [Trajectory(item_id=i, status=Status.SANDBOX_ERROR, error=why_unfinished) for i in missing]
            failed = [Outcome(trajectory) for trajectory in errors]
            self._workload.record(failed, ())

    def _follow(self) -> None:
        pause = PACED_POLL_SECONDS if self._paced else POLL_SECONDS
        while not self._stopping.wait(pause):
            due = self._is_due()
            try:
                rows = self._flush(calls_alone=due)
                if not self.ended_by:
                    self._steer(ask=rows or due)
            except Exception as error:  # noqa: BLE001 - handed to the task's thread, where finish raises it
                self.error = error
            if self.error is not None or self.settled:
                # There may be no container yet.
                while not self._kill() and not self._stopping.wait(pause):
                    pass
                return
            if due and not self.ended_by:
                self._check_limits(self._workload.limits)

    def _is_due(self) -> bool:
        """Whether it is time for what is not done at every look for a paced container's rows."""
        now = time.monotonic()
        if self._paced and now < self._next_look:
            return False
        self._next_look = now + POLL_SECONDS
        return True

    def _steer(self, *, ask: bool) -> None:
        """Let a paced container go on, unless it need not."""
        if self._workload.pace is None:
            return
        if ask and self._workload.settled():
            self.settled = True
            return
        # A refused line counts as well: its item is over, and the container would wait for it for ever.
        allowed = self._reader.lines + self._workload.pace
        if allowed != self._allowed:
            allow(self._stage, allowed)
            self._allowed = allowed

    def _flush(self, *, calls_alone: bool = True) -> bool:
        """Record what is new, calls without rows only if asked to; whether rows were among it."""
        trajectories = self._reader.read()
        if not (trajectories or calls_alone):
            return False
        calls = [self._calls.get() for _ in range(self._calls.qsize())]
        self._intervals += [(call.started, call.started + call.seconds) for call in calls]
        if trajectories or calls:
            self._workload.record([Outcome(trajectory) for trajectory in trajectories], calls)
            total = len(self._workload.items)
            log.info("%d of %d items", total - len(self._reader.missing), total)
        return bool(trajectories)

    def _check_limits(self, limits: SandboxGroup) -> None:
        most = limits.output_mb * MEGABYTE
        reason = ""
        if time.monotonic() > self._deadline:
            reason = f"the container was stopped after {limits.timeout} s (sandbox.timeout)"
        elif written_bytes(self._stage.outputs, most) > most:
            reason = f"the container was stopped: it wrote more than {limits.output_mb} MB (sandbox.output_mb)"
        if reason and self._kill():
            self.ended_by = reason
