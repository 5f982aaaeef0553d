"""The Airflow operator that runs the items of one workload in containers."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from airflow.providers.docker.operators.docker import DockerOperator

from skillopt_airflow.sandbox.task_workload import SandboxSeconds, Workload

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue

    from skillopt_airflow.sandbox.container_loop import Site
    from skillopt_airflow.sandbox.docker_connection import Engine
    from skillopt_airflow.sandbox.staging import TaskFolder

UNSET_IMAGE = "named by the workload"


class RolloutOperator(DockerOperator):
    """Runs a workload's open items in sandboxes; a subclass says which, and what the task returns.

    A container has no network, no credentials, a read-only root, no capabilities and no root user; it reaches one
    model, through a gateway. A container that dies is told of by sandbox_error rows, not by a failed task.

    DockerOperator gives what a task of Docker has in Airflow, its arguments and templates. Its `execute` makes one
    container, without most of the limits; here there may be several at the same time, so they are
    `skillopt_airflow.sandbox.docker_container.Container`, made through the API client of its hook.

    :param docker_url: address of the engine; $DOCKER_HOST or the default socket when unset.
    """

    def __init__(self, *, docker_url: str | None = None, **kwargs: Any) -> None:
        super().__init__(image=UNSET_IMAGE, docker_url=docker_url, **kwargs)
        self._client: Any = None
        self._identity: dict[str, str] = {}
        self._stopped = threading.Event()

    @abstractmethod
    def workload(self, context: Context) -> Workload:
        """The items that have no stored row yet, and how to run and record them."""

    @abstractmethod
    def result(self, workload: Workload, seconds: SandboxSeconds) -> JsonValue:
        """What the task returns; called after the last row was recorded."""

    def execute(self, context: Context) -> Any:
        """Run what is open and still matters, record rows while it runs, and return `result`.

        Raises:
            EngineUnavailable: no engine answers, or it went away.
            ImageMissing: the engine does not have the image and cannot pull it.
            SandboxError: the engine refused the container, or the task was stopped.
        """
        workload = self.workload(context)
        if not workload.items:
            self.log.info("Every item has a stored row; no container is needed")
            return self.result(workload, SandboxSeconds(wall=0.0, model=0.0))
        if workload.settled():
            self.log.info("All %d open items were left out: no win is possible any more", len(workload.items))
            return self.result(workload, SandboxSeconds(wall=0.0, model=0.0))
        attempt = context["ti"].try_number if "ti" in context else 1
        return self.result(workload, self._run(workload, attempt))

    def on_kill(self) -> None:
        """Remove the containers at once: they have nothing to save, and a supervisor waits only seconds."""
        self._stopped.set()
        if self._client is not None:
            from skillopt_airflow.sandbox.labels import remove_all

            remove_all(self._client, self._identity)

    def _run(self, workload: Workload, attempt: int) -> SandboxSeconds:
        from contextlib import closing

        from skillopt_airflow.sandbox import docker_connection as engine
        from skillopt_airflow.sandbox.container_loop import Run
        from skillopt_airflow.sandbox.labels import ATTEMPT_LABEL
        from skillopt_airflow.sandbox.staging import staged
        from skillopt_airflow.sandbox.watcher import Watcher

        clock = time.monotonic()
        found = engine.found(workload.limits.docker_conn_id, str(self.docker_url))
        with closing(self._connect(found, workload)) as client, staged() as folder, engine.judged(found.url):
            site = self._site(workload, folder, found.network)
            watcher = Watcher(workload, self._stopped)
            labels = self._identity | {ATTEMPT_LABEL: str(attempt)}
            try:
                with site.gateway(watcher.on_call):
                    watcher.start()
                    try:
                        Run(client, workload, site, watcher, labels, self._stopped).run()
                    finally:
                        watcher.stop()
            finally:
                watcher.finish()
            return SandboxSeconds(wall=time.monotonic() - clock, model=watcher.model_seconds)

    def _connect(self, found: Engine, workload: Workload) -> Any:
        """Reach the engine, clear away what killed tasks left behind, and have the image there."""
        from skillopt_airflow.sandbox import docker_connection as engine
        from skillopt_airflow.sandbox.labels import identity, reap, remove_all

        with engine.reached(found.url):
            self._client = found.hook.api_client
            self._identity = identity(workload.labels)
            left = remove_all(self._client, self._identity) + reap(self._client)
        if left:
            self.log.warning("Removed %d container(s) that killed tasks left behind", left)
        # The run settled on its image already: what is missing here is that very one.
        engine.ensure_image(self._client, workload.image, "never" if workload.limits.pull == "never" else "missing")
        return self._client

    def _site(self, workload: Workload, folder: TaskFolder, network: str | None) -> Site:
        """Where the containers run."""
        if workload.limits.docker_conn_id is None:
            from skillopt_airflow.sandbox.docker_runtime import LocalSite

            return LocalSite(workload, folder)
        from skillopt_airflow.sandbox.docker_without_shared_files import RemoteSite

        return RemoteSite(self._client, workload, folder, self._identity, network)
