"""The Airflow operator that runs the items of one workload in containers of a Docker engine."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from airflow.providers.docker.operators.docker import DockerOperator

from skillopt_airflow.sandbox.container_loop import RolloutTask

if TYPE_CHECKING:
    from collections.abc import Iterator

    from skillopt_airflow.sandbox.docker_runtime import DockerRuntime
    from skillopt_airflow.sandbox.staging import TaskFolder
    from skillopt_airflow.sandbox.task_workload import Workload


class RolloutOperator(RolloutTask, DockerOperator):
    """Runs a workload's open items in containers; see `RolloutTask`.

    A container has no network, a read-only root, no capabilities and no root user. DockerOperator supplies what its
    users know: arguments, templates, the engine's address. Its `execute` makes one container, without most of the
    limits; here there may be several at once, each a `skillopt_airflow.sandbox.docker_container.Container`.
    """

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._stopped = threading.Event()

    @contextmanager
    def opened(self, workload: Workload, folder: TaskFolder, attempt: int) -> Iterator[DockerRuntime]:
        """Yield the runtime of the workload's engine, after removing what killed tasks left there."""
        from skillopt_airflow.sandbox.docker_remote import opened_runtime

        url = str(self.docker_url)
        with opened_runtime(workload, folder, attempt, url, self.exchange, self._stopped) as runtime:
            self._runtime = runtime
            yield runtime
