"""The execution of a workload by an operator, whichever runtime it has."""

import threading
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from typing import Any

from pydantic import JsonValue

from skillopt_airflow.sandbox.container_loop import Runtime, run_workload
from skillopt_airflow.sandbox.staging import TaskFolder
from skillopt_airflow.sandbox.task_workload import SandboxSeconds, Workload


class RolloutTask(ABC):
    """Run the open items of a workload in sandboxes; a subclass says which workload, and what the task returns.

    A sandbox reaches one model, through a gateway, and holds no credentials. One that dies yields sandbox_error rows
    rather than a failed task.
    """

    image: Any
    _stopped: threading.Event
    _runtime: Runtime | None = None

    @abstractmethod
    def workload(self, context: Any) -> Workload:
        """Return the items that have no stored row yet, and how to run and record them."""

    @abstractmethod
    def result(self, workload: Workload, seconds: SandboxSeconds) -> JsonValue:
        """Return the task's return value; called after the last row was recorded."""

    @abstractmethod
    def opened(self, workload: Workload, folder: TaskFolder, attempt: int) -> AbstractContextManager[Runtime]:
        """Reach the engine, remove what killed tasks left there, and set and yield `_runtime`."""

    def execute(self, context: Any) -> Any:
        """Run what is open and still matters, record rows while it runs, and return `result`.

        Raises:
            SandboxError: or EngineUnavailable or ImageMissing, as the runtime says; or that the task was stopped.
        """
        workload = self.workload(context)
        attempt = context["ti"].try_number if "ti" in context else 1

        def runtime(folder: TaskFolder) -> AbstractContextManager[Runtime]:
            # The run pinned the image when it started; the argument is what its configuration names.
            self.image = workload.image
            return self.opened(workload, folder, attempt)

        return self.result(workload, run_workload(workload, runtime, self._stopped))

    def on_kill(self) -> None:
        """Remove the sandboxes at once: they have nothing to save, and a supervisor waits only seconds."""
        self._stopped.set()
        if self._runtime is not None:
            self._runtime.remove_all()
