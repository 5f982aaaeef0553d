"""Containers on the worker's own engine: folders are mounted, the gateway is part of the task."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from skillopt_airflow.core.types import Item, ModelCall
from skillopt_airflow.gateway.model_gateway import ModelGateway
from skillopt_airflow.sandbox.labels import FOLDER_LABEL
from skillopt_airflow.sandbox.staging import ContainerFolder, Files, TaskFolder
from skillopt_airflow.sandbox.task_gateway import gateway_settings
from skillopt_airflow.sandbox.task_workload import Workload


class LocalSite:
    """The `Site` of the worker's own engine."""

    def __init__(self, workload: Workload, folder: TaskFolder) -> None:
        self._workload = workload
        self._folder = folder
        self.labels = {FOLDER_LABEL: str(folder.path)}
        """What the containers get beside the labels of their workload."""

    def gateway(self, on_call: Callable[[ModelCall], None]) -> AbstractContextManager[Any]:
        """The model gateway, which listens as long as the block runs."""
        workload = self._workload
        return ModelGateway(workload.upstream, self._folder.socket, on_call=on_call, **dict(gateway_settings(workload)))

    @contextmanager
    def stage(self, name: str, items: Sequence[Item], files: Files) -> Iterator[tuple[ContainerFolder, list[Any]]]:
        """The folders of one container, filled, and how they are mounted; gone afterwards."""
        from docker.types import Mount

        with self._folder.container(name, self._workload, items, files) as stage:
            yield (
                stage,
                [
                    Mount("/in", str(stage.inputs), "bind", read_only=True),
                    Mount("/out", str(stage.outputs), "bind"),
                    Mount("/gateway", str(self._folder.gateway), "bind", read_only=True),
                ],
            )
