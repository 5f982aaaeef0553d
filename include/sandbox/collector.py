"""The thread that stores rows while the container still works, and ends a container above its limits."""

import logging
import queue
import threading
import time
from collections.abc import Callable

from include.core.config import SandboxGroup
from include.core.types import ModelCall, Status, Trajectory
from include.sandbox.collect import TrajectoryReader, written_bytes
from include.sandbox.hardening import MEGABYTE
from include.sandbox.staging import Stage
from include.sandbox.workload import Workload, union_seconds

POLL_SECONDS = 2.0

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
        self.ended_by: str = ""
        """Why this thread ended the container, or empty."""
        self.error: Exception | None = None
        """What `record` raised, if it did."""

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

        Raises:
            Exception: what `record` raised, now or in the thread.
        """
        if self.error is not None:
            raise self.error
        self._flush()
        missing = self._reader.missing if why_unfinished else ()
        if missing:
            log.warning("%d of %d items are unfinished: %s", len(missing), len(self._workload.items), why_unfinished)
            failed = [Trajectory(item_id=i, status=Status.SANDBOX_ERROR, error=why_unfinished) for i in missing]
            self._workload.record(failed, ())

    def _follow(self) -> None:
        while not self._stopping.wait(POLL_SECONDS):
            try:
                self._flush()
            except Exception as error:  # noqa: BLE001 - handed to the task's thread, where finish raises it
                self.error = error
                self._kill()
                return
            if not self.ended_by:
                self._check_limits(self._workload.limits)

    def _flush(self) -> None:
        trajectories = self._reader.read()
        calls = [self._calls.get() for _ in range(self._calls.qsize())]
        self._intervals += [(call.started, call.started + call.seconds) for call in calls]
        if trajectories or calls:
            self._workload.record(trajectories, calls)
            total = len(self._workload.items)
            log.info("%d of %d items", total - len(self._reader.missing), total)

    def _check_limits(self, limits: SandboxGroup) -> None:
        most = limits.output_mb * MEGABYTE
        reason = ""
        if time.monotonic() > self._deadline:
            reason = f"the container was stopped after {limits.timeout} s (sandbox.timeout)"
        elif written_bytes(self._stage.outputs, most) > most:
            reason = f"the container was stopped: it wrote more than {limits.output_mb} MB (sandbox.output_mb)"
        if reason and self._kill():
            self.ended_by = reason
