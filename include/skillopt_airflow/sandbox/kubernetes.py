"""Pods on a Kubernetes cluster as a task's sandboxes."""

from __future__ import annotations

import logging
import os
import threading
import time
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from airflow.providers.cncf.kubernetes.hooks.kubernetes import KubernetesHook

from skillopt_airflow.sandbox.cluster import Pod, clear_away, reached
from skillopt_airflow.sandbox.docker_limits import MEGABYTE
from skillopt_airflow.sandbox.labels import identity
from skillopt_airflow.sandbox.pod import (
    INSTALLATION_LABEL,
    WORKLOAD_LABEL,
    PodPlan,
    installation_label,
    labels_of,
    workload_label,
)
from skillopt_airflow.sandbox.remote_folder import address_seconds, shipped

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from contextlib import AbstractContextManager

    from skillopt_airflow.core.types import Item, ModelCall
    from skillopt_airflow.sandbox.remote_folder import Exchanges
    from skillopt_airflow.sandbox.staging import Files, TaskFolder
    from skillopt_airflow.sandbox.task_workload import Corpus, Workload

BLOCK = 4096
"""Bytes of a file system's block."""

log = logging.getLogger(__name__)


@contextmanager
def opened_runtime(
    workload: Workload, folder: TaskFolder, attempt: int, exchanges: Exchanges, stopped: threading.Event
) -> Iterator[PodRuntime]:
    """Yield the runtime of the workload's cluster, after removing what killed tasks left there and in the store."""
    limits = workload.limits
    with reached(limits.namespace):
        client = KubernetesHook(conn_id=limits.kubernetes_conn_id).core_v1_client
    runtime = PodRuntime(client, workload, folder, attempt, exchanges, stopped)
    runtime.remove_all()
    exchanges(workload_label(identity(workload.labels))).clear()
    yield runtime


@dataclass
class PodRuntime:
    """The `Runtime` of a cluster."""

    client: Any
    workload: Workload
    folder: TaskFolder
    attempt: int
    exchanges: Exchanges
    stopped: threading.Event

    def __post_init__(self) -> None:
        self._identity = identity(self.workload.labels)
        self._label = workload_label(self._identity)

    def at_once(self) -> int:
        """Return how many pods of the task may run at the same time."""
        return self.workload.settings.concurrency if self.workload.one_item_each else 1

    def serving(self, on_call: Callable[[ModelCall], None]) -> AbstractContextManager[None]:
        """Pass on the calls of the gateways, of which each pod has its own."""
        self._on_call = on_call
        return nullcontext()

    @contextmanager
    def sandbox(self, number: int, items: Sequence[Item], files: Files) -> Iterator[Pod]:
        """Leave the inputs of a pod in the store, and remove what it left there afterwards."""
        workload = self.workload
        name = f"skillopt-{self._label}-{self.attempt}-{number}-{os.urandom(3).hex()}"
        exchange = self.exchanges(f"{self._label}/{name}")
        labels = labels_of(self._identity, time.time() + address_seconds(workload, len(items)))
        room = _room(workload.corpus) // MEGABYTE
        plan = PodPlan(name, workload.image, workload.limits, len(items), labels, room)
        with (
            self.folder.container(str(number), workload, items, files) as staged,
            shipped(workload, number, items, staged, exchange, self.at_once(), self._on_call) as (folder, secrets),
        ):
            yield Pod(self.client, plan, folder, secrets, self.stopped)

    def remove_all(self) -> None:
        """Remove the task's pods, and those of the installation that have expired."""
        same = f"{WORKLOAD_LABEL}={self._label}"
        installation = f"{INSTALLATION_LABEL}={installation_label(self._identity)}"
        left = clear_away(self.client, self.workload.limits.namespace, same, installation)
        if left:
            log.info("Removed %d pod(s) of this task, or of tasks that were killed", left)


def _room(corpus: Corpus | None) -> int:
    """Return the bytes on disk that a corpus takes, if there is one: whole blocks for each file and its folder."""
    if corpus is None:
        return 0
    return MEGABYTE + sum(file.size + 2 * BLOCK for file in corpus.manifest.files)
