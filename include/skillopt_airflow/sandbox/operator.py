"""The Airflow operator that runs the items of one workload in sandboxes."""

import threading
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from pydantic import JsonValue

from skillopt_airflow.sandbox.container_loop import Runtime, run_workload
from skillopt_airflow.sandbox.staging import TaskFolder
from skillopt_airflow.sandbox.task_workload import SandboxSeconds, Workload

if TYPE_CHECKING:
    from skillopt_airflow.sandbox.kubernetes.remote_folder import Exchange


class RolloutOperator(BaseOperator):
    """Runs a workload's open items in containers of a Docker engine or in pods, as the workload's limits say.

    A sandbox reaches one model, through a gateway, and holds no credentials. One that dies yields sandbox_error rows
    rather than a failed task. A subclass says which workload, and what the task returns.
    """

    docker_url: str | None = None
    """Address of the worker's own engine; that of its environment when None."""
    _runtime: Runtime | None = None

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._stopped = threading.Event()

    @abstractmethod
    def workload(self, context: Any) -> Workload:
        """Return the items that have no stored row yet, and how to run and record them."""

    @abstractmethod
    def result(self, workload: Workload, seconds: SandboxSeconds) -> JsonValue:
        """Return the task's return value; called after the last row was recorded."""

    @abstractmethod
    def exchange(self, name: str) -> "Exchange":
        """Return a folder of the store for a workload or, inside of it, a sandbox; a name may have slashes."""

    def execute(self, context: Any) -> Any:
        """Run what is open and still matters, record rows while it runs, and return `result`.

        Raises:
            SandboxError: or EngineUnavailable or ImageMissing, as the runtime says; or that the task was stopped.
        """
        workload = self.workload(context)
        attempt = context["ti"].try_number if "ti" in context else 1

        def opened(folder: TaskFolder) -> AbstractContextManager[Runtime]:
            return self.opened(workload, folder, attempt)

        return self.result(workload, run_workload(workload, opened, self._stopped))

    @contextmanager
    def opened(self, workload: Workload, folder: TaskFolder, attempt: int) -> Iterator[Runtime]:
        opened: AbstractContextManager[Runtime]
        if workload.limits.engine == "kubernetes":
            from skillopt_airflow.sandbox.kubernetes import runtime as kubernetes

            opened = kubernetes.opened_runtime(workload, folder, attempt, self.exchange, self._stopped)
        else:
            from skillopt_airflow.sandbox import docker_runtime

            url = self.docker_url
            opened = docker_runtime.opened_runtime(workload, folder, attempt, url, self.exchange, self._stopped)
        with opened as self._runtime:
            yield self._runtime

    def on_kill(self) -> None:
        """Remove the sandboxes at once: they have nothing to save, and a supervisor waits only seconds."""
        self._stopped.set()
        if self._runtime is not None:
            self._runtime.remove_all()
