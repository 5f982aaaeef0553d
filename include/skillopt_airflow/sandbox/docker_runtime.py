"""Containers on a Docker engine that sees the worker's files: folders are mounted, the gateway runs in the task."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from skillopt_airflow.core.types import Item, ModelCall
from skillopt_airflow.sandbox.corpus_cache import beside_the_worker
from skillopt_airflow.sandbox.corpus_volume import FOLDER
from skillopt_airflow.sandbox.docker_container import Container, Plan
from skillopt_airflow.sandbox.docker_limits import repository_seconds, task_seconds, together
from skillopt_airflow.sandbox.gateway_container import task_gateway
from skillopt_airflow.sandbox.item_images import ItemImages
from skillopt_airflow.sandbox.labels import ATTEMPT_LABEL, FOLDER_LABEL, ITEM_LABEL, expiry, identity, remove_all
from skillopt_airflow.sandbox.staging import ContainerFolder, Files, TaskFolder
from skillopt_airflow.sandbox.task_workload import Workload


@dataclass
class DockerRuntime:
    """The `Runtime` of an engine that can mount the worker's folders; `network` is one that a gateway may be on."""

    client: Any
    workload: Workload
    folder: TaskFolder
    attempt: int
    network: str | None
    stopped: threading.Event

    @cached_property
    def labels(self) -> dict[str, str]:
        """The labels of whatever the task makes on the engine, for as long as the task may take."""
        own = {ATTEMPT_LABEL: str(self.attempt), FOLDER_LABEL: str(self.folder.path)}
        return identity(self.workload.labels) | own | self._expiry()

    def at_once(self) -> int:
        """Return how many containers of the task may run at the same time."""
        if not self.workload.one_item_each:
            return 1
        memory = int(self.client.info()["MemTotal"])
        workload = self.workload
        return together(workload.limits, workload.settings.concurrency, workload.run_concurrency, memory)

    @contextmanager
    def serving(self, on_call: Callable[[ModelCall], None]) -> Iterator[None]:
        """Serve the model, at a socket in each container's folder, for as long as the block runs."""
        with task_gateway(self.workload, on_call) as self._gateway:
            yield

    @contextmanager
    def sandbox(self, number: int, items: Sequence[Item], files: Files) -> Iterator[Container]:
        """Stage the inputs of a container, and remove its folders afterwards."""
        workload = self.workload
        (own, *_) = items
        image = self._images.of(own) if workload.one_item_each else workload.image
        with (
            self.folder.container(str(number), workload, items, files) as staged,
            self._mounted(staged) as (folder, mounts),
        ):
            # An image may take longer to be there than the task may; and while others are judged, a container waits.
            labels = self.labels | self._expiry()
            if workload.one_item_each:
                labels[ITEM_LABEL] = str(number)
            plan = Plan(image, workload.limits, labels, mounts, has_repository=image != workload.image)
            yield Container(self.client, plan, folder, self.stopped)

    def remove_all(self) -> None:
        """Remove every container of the task; if the engine has gone away, the next attempt does."""
        from docker.errors import DockerException
        from requests import RequestException

        with suppress(DockerException, RequestException):
            remove_all(self.client, identity(self.workload.labels))

    def _expiry(self) -> dict[str, str]:
        """Return the label of what the task may need for all its time from now on."""
        limits, items = self.workload.limits, self.workload.items
        repositories = sum(item.image is not None for item in items)
        return expiry(task_seconds(limits, len(items)) + repositories * repository_seconds(limits))

    @contextmanager
    def _mounted(self, folder: ContainerFolder) -> Iterator[tuple[ContainerFolder, list[Any]]]:
        """Yield the folder that the container's output appears in, and the docker.types.Mount of each of its parts."""
        from docker.types import Mount

        mounts = [
            Mount("/in", str(folder.inputs), "bind", read_only=True),
            Mount("/out", str(folder.outputs), "bind"),
            Mount("/gateway", str(folder.gateway), "bind", read_only=True),
        ]
        items = 1 if self.workload.one_item_each else self.workload.settings.concurrency
        with self._gateway.listening(folder.socket, items):
            yield folder, mounts + self._corpus_mounts

    @cached_property
    def _images(self) -> ItemImages:
        workload = self.workload
        return ItemImages(self.client, workload.image, workload.limits, workload.image_files)

    @cached_property
    def _corpus_mounts(self) -> list[Any]:
        """The mount of the run's corpus, if it has one, which all its containers on this host share."""
        from docker.types import Mount

        staged = beside_the_worker(self.workload, self.folder)
        return [] if staged is None else [Mount(FOLDER, str(staged), "bind", read_only=True)]
