"""The Airflow operator that runs the items of one workload in sandboxes."""

import threading
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from pydantic import JsonValue

from skillopt_airflow.sandbox.container_loop import Runtime, run_workload
from skillopt_airflow.sandbox.task_workload import SandboxSeconds, Workload

if TYPE_CHECKING:
    from skillopt_airflow.sandbox.kubernetes.remote_folder import Exchange


class RolloutOperator(BaseOperator):
    """Runs a workload's open items in containers or pods, depending on `sandbox.engine`.

    A sandbox reaches one model, through a gateway, and has no credentials. If it dies, its items become sandbox_error
    rows, and the task doesn't fail.
    """

    docker_url: str | None = None
    """URL of the worker's engine; if None, the environment's."""
    _runtime: Runtime | None = None

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._stopped = threading.Event()

    @abstractmethod
    def workload(self, context: Any) -> Workload:
        """Return the items without a stored row, and how to run and record them."""

    @abstractmethod
    def result(self, workload: Workload, seconds: SandboxSeconds) -> JsonValue:
        """Return the task's XCom; called after the last row is recorded."""

    @abstractmethod
    def exchange(self, name: str) -> "Exchange":
        """Return the store's folder of a workload or a sandbox; a name may contain slashes."""

    def execute(self, context: Any) -> Any:
        workload = self.workload(context)
        attempt = context["ti"].try_number if "ti" in context else 1
        seconds = run_workload(workload, lambda folder: self.open_runtime(workload, folder, attempt), self._stopped)
        return self.result(workload, seconds)

    @contextmanager
    def open_runtime(self, workload: Workload, folder: Path, attempt: int) -> Iterator[Runtime]:
        runtime: AbstractContextManager[Runtime]
        if workload.limits.engine == "kubernetes":
            from skillopt_airflow.sandbox.kubernetes import runtime as kubernetes

            runtime = kubernetes.open_runtime(workload, folder, attempt, self.exchange, self._stopped)
        else:
            from skillopt_airflow.sandbox import docker_runtime

            url = self.docker_url
            runtime = docker_runtime.open_runtime(workload, folder, attempt, url, self.exchange, self._stopped)
        with runtime as self._runtime:
            yield self._runtime

    def on_kill(self) -> None:
        # At once: sandboxes have nothing to save, and Airflow's supervisor only waits for seconds.
        self._stopped.set()
        if self._runtime is not None:
            self._runtime.remove_all()
