"""Pods on a Kubernetes cluster: inputs and outputs travel through a folder of the object store."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from skillopt_airflow.core.sessions import SEALED
from skillopt_airflow.core.types import Item, ModelCall
from skillopt_airflow.sandbox.cluster import Pod, clear_away
from skillopt_airflow.sandbox.docker_limits import MEGABYTE
from skillopt_airflow.sandbox.gateway_container import gateway_document, report_calls
from skillopt_airflow.sandbox.labels import identity
from skillopt_airflow.sandbox.pod import (
    INSTALLATION_LABEL,
    START_SECONDS,
    WORKLOAD_LABEL,
    PodPlan,
    deadline,
    installation_label,
    labels_of,
    workload_label,
)
from skillopt_airflow.sandbox.pod_transfer import TransferConfig
from skillopt_airflow.sandbox.staging import CopiedFolder, Files, TaskFolder
from skillopt_airflow.sandbox.tar_archive import packed, unpack
from skillopt_airflow.sandbox.task_workload import Allotment, Corpus, Workload

BLOCK = 4096
"""Bytes of a file system's block."""
LONGEST_ADDRESS = 7 * 24 * 3600
"""Seconds for which S3 accepts a signed address at most."""
INPUTS, TRAJECTORIES, FILES, CALLS = "inputs.tar", "trajectories.jsonl", "files.tar", "calls.jsonl"

log = logging.getLogger(__name__)


class Exchange(Protocol):
    """A folder of the store that a pod reaches by signed addresses."""

    def put(self, name: str, body: bytes) -> None:
        """Leave something for the pod."""

    def address(self, name: str, method: Literal["get", "put"], seconds: int) -> str:
        """Return where the pod fetches or leaves an object, for so many seconds."""

    def shared_address(self, key: str, seconds: int) -> str:
        """Return where the pod fetches another object of the bucket, for so many seconds."""

    def take(self, name: str, most: int) -> bytes | None:
        """Return what the pod left since the last time, if it did, and if it has at most `most` bytes."""

    def clear(self) -> None:
        """Remove everything."""


@dataclass
class PodRuntime:
    """The `Runtime` of a cluster; `exchange` opens a folder of the store, whose name may have slashes."""

    client: Any
    workload: Workload
    folder: TaskFolder
    attempt: int
    exchange: Callable[[str], Exchange]
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
        workload, limits = self.workload, self.workload.limits
        name = f"skillopt-{self._label}-{self.attempt}-{number}-{os.urandom(3).hex()}"
        exchange, most = self.exchange(f"{self._label}/{name}"), limits.output_mb * MEGABYTE
        life = min(deadline(limits, len(items)) + START_SECONDS, LONGEST_ADDRESS)
        corpus = workload.corpus
        with self.folder.container(str(number), workload, items, files) as staged, ExitStack() as cleared:
            if staged.sealed.is_dir():
                staged.sealed.rename(staged.inputs / SEALED)
            cleared.callback(exchange.clear)
            exchange.put(INPUTS, packed(staged.inputs))
            transfer = TransferConfig(
                inputs=exchange.address(INPUTS, "get", life),
                trajectories=exchange.address(TRAJECTORIES, "put", life),
                files=exchange.address(FILES, "put", life),
                calls=exchange.address(CALLS, "put", life),
                items=len(items),
                most_bytes=most,
                corpus=() if corpus is None else [exchange.shared_address(key, life) for key in corpus.archive_keys],
            )
            labels = labels_of(self._identity, time.time() + life)
            plan = PodPlan(name, workload.image, limits, len(items), labels, _room(corpus) // MEGABYTE)
            coming = len(workload.items) - number if workload.one_item_each else 1
            with workload.allotted(coming) as allotment:
                folder = PodFolder(staged.path, exchange, most, allotment, self._on_call)
                gateway = gateway_document(workload, allotment.budget, self.at_once())
                secrets = (gateway, transfer.model_dump(mode="json"))
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


class PodFolder(CopiedFolder):
    """The task's copy of a pod's folders; what a pod left is trusted as little as what a container wrote."""

    def __init__(
        self, path: Path, exchange: Exchange, most: int, allotment: Allotment, on_call: Callable[[ModelCall], None]
    ) -> None:
        super().__init__(path)
        self._allotment = allotment
        self._exchange = exchange
        self._most = most
        self._on_call = on_call
        self._calls = 0

    def _fetch(self) -> None:
        """Take what is new; rows first, because the pod leaves the files that they name before them."""
        rows = self._exchange.take(TRAJECTORIES, self._most)
        files = self._exchange.take(FILES, 2 * self._most)
        calls = self._exchange.take(CALLS, self._most)
        if files is not None:
            unpack([files], self.files, self._most)
        if rows is not None:
            self.trajectories.write_bytes(rows)
        if calls is not None:
            # Complete lines only, each once.
            *lines, _ = calls.split(b"\n")
            report_calls(lines[self._calls :], self._allotment, self._on_call)
            self._calls = max(self._calls, len(lines))
