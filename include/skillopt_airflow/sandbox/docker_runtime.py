"""Containers on a Docker engine that sees the worker's files: folders are mounted, the gateway runs in the task."""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from skillopt_airflow.core.types import Item, ModelCall
from skillopt_airflow.sandbox.corpus_cache import staged_corpus
from skillopt_airflow.sandbox.docker_container import Container, Plan
from skillopt_airflow.sandbox.docker_limits import CORPUS_FOLDER, repository_seconds, task_seconds, together
from skillopt_airflow.sandbox.gateway_container import task_gateway
from skillopt_airflow.sandbox.item_images import ItemImages
from skillopt_airflow.sandbox.labels import ATTEMPT_LABEL, FOLDER_LABEL, ITEM_LABEL, expiry, identity, remove_all
from skillopt_airflow.sandbox.staging import Files, TaskFolder
from skillopt_airflow.sandbox.task_workload import Workload


@dataclass
class DockerRuntime:
    """The `Runtime` of an engine that can mount the worker's folders."""

    client: Any
    workload: Workload
    folder: TaskFolder
    attempt: int
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
        from docker.types import Mount

        workload, image = self.workload, self._image(items)
        calls = 1 if workload.one_item_each else workload.settings.concurrency
        with (
            self.folder.container(str(number), workload, items, files) as staged,
            self._gateway.listening(staged.socket, calls),
        ):
            mounts = [
                Mount("/in", str(staged.inputs), "bind", read_only=True),
                Mount("/out", str(staged.outputs), "bind"),
                Mount("/gateway", str(staged.gateway), "bind", read_only=True),
            ]
            if self._corpus is not None:
                mounts.append(Mount(CORPUS_FOLDER, str(self._corpus), "bind", read_only=True))
            yield Container(self.client, self._plan(number, image, mounts), staged, self.stopped)

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

    def _image(self, items: Sequence[Item]) -> str:
        """Return the image of a container, which is built if it is an item's own."""
        return self._images.of(items[0]) if self.workload.one_item_each else self.workload.image

    def _plan(self, number: int, image: str, mounts: Sequence[Any] = ()) -> Plan:
        """Return the plan of a container, whose time begins now: to build its image may take longer than the task."""
        workload = self.workload
        labels = self.labels | self._expiry()
        if workload.one_item_each:
            labels[ITEM_LABEL] = str(number)
        return Plan(image, workload.limits, labels, mounts, has_repository=image != workload.image)

    @cached_property
    def _corpus(self) -> Path | None:
        """The host's copy of the run's corpus, if it has one."""
        corpus = self.workload.corpus
        return None if corpus is None else staged_corpus(corpus, self.folder.path.parent)

    @cached_property
    def _images(self) -> ItemImages:
        workload = self.workload
        return ItemImages(self.client, workload.image, workload.limits, workload.image_files)
