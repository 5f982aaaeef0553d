"""Containers on a Docker engine that sees the worker's files: folders are mounted, the gateway runs in the task."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

from skillopt_airflow.core.types import Item, ModelCall
from skillopt_airflow.gateway.model_gateway import ModelGateway
from skillopt_airflow.sandbox.docker_container import Container, Plan
from skillopt_airflow.sandbox.docker_limits import together
from skillopt_airflow.sandbox.gateway_container import gateway_settings
from skillopt_airflow.sandbox.labels import ATTEMPT_LABEL, FOLDER_LABEL, ITEM_LABEL, expiry, identity, remove_all
from skillopt_airflow.sandbox.staging import ContainerFolder, Files, TaskFolder
from skillopt_airflow.sandbox.task_workload import Workload


class DockerRuntime:
    """The `Runtime` of an engine that can mount the worker's folders."""

    def __init__(
        self, client: Any, workload: Workload, folder: TaskFolder, attempt: int, stopped: threading.Event
    ) -> None:
        self._client = client
        self._workload = workload
        self._folder = folder
        self._stopped = stopped
        self._identity = identity(workload.labels)
        self._labels = self._identity | {ATTEMPT_LABEL: str(attempt), FOLDER_LABEL: str(folder.path)}

    def at_once(self) -> int:
        """Return how many containers of the task may run at the same time."""
        if not self._workload.one_item_each:
            return 1
        memory = int(self._client.info()["MemTotal"])
        return together(self._workload.limits, self._workload.settings.concurrency, memory)

    def serving(self, on_call: Callable[[ModelCall], None]) -> AbstractContextManager[Any]:
        """Serve the model on the socket in the task's folder for as long as the block runs."""
        settings = dict(gateway_settings(self._workload))
        return ModelGateway(self._workload.upstream, self._folder.socket, on_call=on_call, **settings)

    @contextmanager
    def sandbox(self, number: int, items: Sequence[Item], files: Files) -> Iterator[Container]:
        """Stage the inputs of a container, and remove its folders afterwards."""
        workload, labels = self._workload, self._labels | expiry(self._workload.limits.timeout)
        if workload.one_item_each:
            labels[ITEM_LABEL] = str(number)
        with (
            self._folder.container(str(number), workload, items, files) as staged,
            self._mounted(staged) as (folder, mounts),
        ):
            plan = Plan(workload.image, workload.limits, labels, mounts)
            yield Container(self._client, plan, folder, self._stopped)

    def remove_all(self) -> None:
        """Remove every container of the task; if the engine has gone away, the next attempt does."""
        from docker.errors import DockerException
        from requests import RequestException

        with suppress(DockerException, RequestException):
            remove_all(self._client, self._identity)

    @contextmanager
    def _mounted(self, folder: ContainerFolder) -> Iterator[tuple[ContainerFolder, list[Any]]]:
        """Yield the folder that the container's output appears in, and the docker.types.Mount of each of its parts."""
        from docker.types import Mount

        mounts = [
            Mount("/in", str(folder.inputs), "bind", read_only=True),
            Mount("/out", str(folder.outputs), "bind"),
            Mount("/gateway", str(self._folder.gateway), "bind", read_only=True),
        ]
        yield folder, mounts
