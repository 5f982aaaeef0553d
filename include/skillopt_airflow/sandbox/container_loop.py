"""All containers of one task: as many at the same time as may be, and none left when the task ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, suppress
from typing import Any, Protocol

from skillopt_airflow.core.types import Item, ModelCall
from skillopt_airflow.sandbox.docker_container import Container, Plan
from skillopt_airflow.sandbox.docker_limits import together
from skillopt_airflow.sandbox.labels import ITEM_LABEL, expiry, remove_all
from skillopt_airflow.sandbox.staging import ContainerFolder, Files
from skillopt_airflow.sandbox.task_workload import Workload
from skillopt_airflow.sandbox.watcher import Watcher


class Site(Protocol):
    """Where the containers of one task run: on the worker's own engine, or on another one."""

    @property
    def labels(self) -> Mapping[str, str]:
        """What the containers get beside the labels of their workload."""
        ...

    def gateway(self, on_call: Callable[[ModelCall], None]) -> AbstractContextManager[Any]:
        """The model gateway, which listens as long as the block runs."""
        ...

    def stage(
        self, name: str, items: Sequence[Item], files: Files
    ) -> AbstractContextManager[tuple[ContainerFolder, list[Any]]]:
        """The folders of one container, filled, and docker.types.Mount of each; gone afterwards."""
        ...


class Run:
    """The containers of a workload; `stopped` is set when the task is stopped, by whoever stops it."""

    def __init__(
        self,
        client: Any,
        workload: Workload,
        site: Site,
        watcher: Watcher,
        labels: Mapping[str, str],
        stopped: threading.Event,
    ) -> None:
        self._client = client
        self._workload = workload
        self._site = site
        self._collector = watcher
        self._labels = labels
        self._stopped = stopped
        self._reading = threading.Lock()

    def run(self) -> None:
        """Run every open item that still matters, a wave at a time.

        Raises:
            SandboxError: of the kind that says what the engine refused, or that the task was stopped.
        """
        from docker.errors import DockerException
        from requests import RequestException

        with ThreadPoolExecutor(self._at_once(), thread_name_prefix="sandbox") as pool:
            try:
                for wave in self._collector.waves():
                    running = [pool.submit(self._run_one, number, items) for number, items in wave]
                    for future in wait(running, return_when=FIRST_EXCEPTION).done:
                        future.result()
            except BaseException:
                self._stopped.set()
                pool.shutdown(wait=False, cancel_futures=True)
                # An engine that went away cannot be asked; the next attempt removes what is left.
                with suppress(DockerException, RequestException):
                    remove_all(self._client, self._labels)
                raise

    def _at_once(self) -> int:
        if not self._workload.one_item_each:
            return 1
        memory = int(self._client.info()["MemTotal"])
        return together(self._workload.limits, self._workload.settings.concurrency, memory)

    def _run_one(self, number: int, items: Sequence[Item]) -> None:
        workload, watcher = self._workload, self._collector
        if watcher.is_over():
            return
        with self._reading:
            files: Files = [workload.files(item) for item in items]
        with self._site.stage(str(number), items, files) as (stage, mounts):
            labels = {**self._labels, **self._site.labels, **expiry(workload.limits.timeout)}
            if workload.one_item_each:
                labels[ITEM_LABEL] = str(number)
            plan = Plan(workload.image, workload.limits, labels, mounts)
            container = Container(self._client, plan, self._stopped)
            watch = watcher.watch(items, stage, container.kill)
            why = ""
            try:
                why = container.run()
            finally:
                stage.ended = True
                watcher.end(watch, why)
