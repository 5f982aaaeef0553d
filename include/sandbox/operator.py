"""The Airflow operator that runs the items of one workload in one container."""

from __future__ import annotations

import time
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

from airflow.providers.docker.operators.docker import DockerOperator

from include.core.errors import EngineUnavailable, ImageMissing, SandboxError
from include.sandbox.workload import SandboxSeconds, Workload

if TYPE_CHECKING:
    from airflow.sdk import Context
    from pydantic import JsonValue

    from include.sandbox.collector import Collector
    from include.sandbox.containers import HardenedClient
    from include.sandbox.staging import Stage

UNSET_IMAGE = "named by the workload"


class RolloutOperator(DockerOperator):
    """Runs a workload's open items in a sandbox; a subclass says which, and what the task returns.

    The container has no network, no credentials, a read-only root, no capabilities and no root user; it reaches one
    model, through a gateway that this task runs. A container that dies is told of by sandbox_error rows, not by a
    failed task.

    :param docker_url: address of the engine; $DOCKER_HOST or the default socket when unset.
    """

    def __init__(self, *, docker_url: str | None = None, **kwargs: Any) -> None:
        super().__init__(
            image=UNSET_IMAGE,
            docker_url=docker_url,
            network_mode="none",
            mount_tmp_dir=False,
            auto_remove="force",
            log_opts_max_size="1m",
            log_opts_max_file="1",
            **kwargs,
        )
        self._client: HardenedClient | None = None
        self._identity: dict[str, str] = {}
        self._killed = False

    @abstractmethod
    def workload(self, context: Context) -> Workload:
        """The items that have no stored row yet, and how to run and record them."""

    @abstractmethod
    def result(self, workload: Workload, seconds: SandboxSeconds) -> JsonValue:
        """What the task returns; called after the last row was recorded."""

    @property
    def cli(self) -> Any:
        """The engine's client, through which DockerOperator's own machinery makes hardened containers."""
        return self._client

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
        if workload.pace is not None and workload.settled():
            self.log.info("All %d open items were left out: no win is possible any more", len(workload.items))
            return self.result(workload, SandboxSeconds(wall=0.0, model=0.0))
        return self.result(workload, self._run(workload, context))

    def on_kill(self) -> None:
        """Remove the container at once: it has nothing to save, and a supervisor waits only seconds."""
        from include.sandbox.containers import remove_all

        self._killed = True
        if self._client is not None:
            remove_all(self._client, self._identity)

    def _run(self, workload: Workload, context: Context) -> SandboxSeconds:
        from contextlib import closing

        from include.sandbox.collector import Collector
        from include.sandbox.gateway import ModelGateway
        from include.sandbox.staging import staged

        clock = time.monotonic()
        client = self._connect(workload)
        with closing(client), staged(workload) as stage:
            collector = Collector(workload, stage, self._kill_container)
            gateway = ModelGateway(
                workload.upstream,
                stage.socket,
                stage=workload.stage,
                max_attempts=workload.settings.max_attempts,
                call_timeout=workload.settings.call_timeout,
                on_call=collector.on_call,
            )
            try:
                with gateway:
                    collector.start()
                    try:
                        self._run_container(workload, stage, collector, context)
                    finally:
                        collector.stop()
            except BaseException:
                collector.finish("")
                raise
            collector.finish(self._why_unfinished(collector, workload))
            return SandboxSeconds(wall=time.monotonic() - clock, model=collector.model_seconds)

    def _connect(self, workload: Workload) -> HardenedClient:
        """Reach the engine, and clear away what a killed attempt of the same workload left behind."""
        from airflow.sdk.exceptions import AirflowException
        from docker.errors import DockerException
        from requests import RequestException

        from include.sandbox.containers import HardenedClient, identity, remove_all
        from include.sandbox.hardening import host_options

        try:
            client = HardenedClient(self.hook.api_client, host_options(workload.limits))
            self._identity = identity(workload.labels)
            self._client = client
            left = remove_all(client, self._identity)
        except (AirflowException, DockerException, RequestException) as error:
            raise EngineUnavailable(
                f"no Docker engine answers at {self.docker_url}: start one, or point DOCKER_HOST at one ({error})"
            ) from error
        if left:
            self.log.warning("Removed %d container(s) that an earlier attempt left behind", left)
        return client

    def _run_container(self, workload: Workload, stage: Stage, collector: Collector, context: Context) -> None:
        from airflow.providers.docker.exceptions import DockerContainerFailedException
        from docker.errors import DockerException
        from requests import RequestException
        from urllib3.exceptions import HTTPError

        self._describe(workload, stage, context)
        try:
            super().execute(context)
        except DockerContainerFailedException:
            if not collector.settled:
                self.log.warning("The container ended with an error; its items tell which")
        except (DockerException, RequestException, HTTPError) as error:
            if not self._killed:
                self._judge(error)
        if self._killed:
            raise SandboxError("the task was stopped, and its container removed")

    def _judge(self, error: Exception) -> None:
        """Raise what the engine's error means; a container that someone else removed is no error of the task."""
        from docker.errors import APIError, ImageNotFound, NotFound

        if not isinstance(error, APIError):
            raise EngineUnavailable(f"the Docker engine at {self.docker_url} went away: {error}") from error
        if self.container is None and (isinstance(error, ImageNotFound) or not self.cli.images(name=self.image)):
            raise ImageMissing(
                f"the engine does not have the sandbox image {self.image} and cannot pull it: build it (`make up` "
                f"does), or set sandbox.image to one that it can pull ({error.explanation})"
            ) from error
        if not isinstance(error, NotFound):
            raise SandboxError(f"the Docker engine refused the sandbox: {error.explanation}") from error
        self.log.warning("The container was removed from outside: %s", error.explanation)

    def _describe(self, workload: Workload, stage: Stage, context: Context) -> None:
        """Set what DockerOperator builds the container from."""
        from docker.types import Mount

        from include.sandbox.containers import ATTEMPT_LABEL, FOLDER_LABEL
        from include.sandbox.staging import container_user

        attempt = context["ti"].try_number if "ti" in context else 1
        self.image = workload.image
        self.user = container_user()
        self.labels = self._identity | {ATTEMPT_LABEL: str(attempt), FOLDER_LABEL: str(stage.folder)}
        self.mounts = [
            Mount("/in", str(stage.inputs), "bind", read_only=True),
            Mount("/out", str(stage.outputs), "bind"),
            Mount("/gateway", str(stage.gateway), "bind", read_only=True),
        ]

    def _kill_container(self) -> bool:
        """From the collector's thread; False if no container runs yet."""
        from docker.errors import APIError

        if self.container is None:
            return False
        try:
            self.cli.kill(self.container["Id"])
        except APIError as error:
            if self._is_to_start():
                return False
            self.log.info("The container had already ended: %s", error.explanation)
        return True

    def _is_to_start(self) -> bool:
        from docker.errors import APIError

        try:
            return bool(self.cli.inspect_container(self.container["Id"])["State"]["Status"] == "created")
        except APIError:
            return False

    def _why_unfinished(self, collector: Collector, workload: Workload) -> str:
        from include.sandbox.hardening import end_of

        state = {} if self._client is None else self._client.state
        return collector.ended_by or end_of(state, workload.limits)
