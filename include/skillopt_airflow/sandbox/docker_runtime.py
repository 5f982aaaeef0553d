"""Containers on a Docker engine.

On the worker's host, the engine mounts the worker's folders, and the gateway runs in the task. On another machine,
each container gets the same helpers as a pod (`pod.py`). The courier moves its files through the object store, and the
gateway's socket is in a volume, so the container needs no network there either. Docker's internal networks are too
open: the engine's host has an address on their bridge, and older engines resolve external names (CVE-2024-29018).
"""

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from skillopt_airflow.core.errors import SandboxError
from skillopt_airflow.core.values.types import Item, JsonObject, ModelCall
from skillopt_airflow.sandbox.docker import connection as docker_connection
from skillopt_airflow.sandbox.docker.container import (
    ATTEMPT_LABEL,
    FOLDER_LABEL,
    ITEM_LABEL,
    Container,
    Plan,
    execute,
    expiry,
    identity,
    lines,
    remove_all,
    remove_container,
    remove_expired,
    temporary_volume,
)
from skillopt_airflow.sandbox.docker.item_images import ItemImages
from skillopt_airflow.sandbox.docker.limits import (
    CORPUS_FOLDER,
    MEGABYTE,
    helper_options,
    parallel_containers,
    repository_seconds,
    task_seconds,
)
from skillopt_airflow.sandbox.kubernetes import pod
from skillopt_airflow.sandbox.kubernetes.courier import CALLS_PATH
from skillopt_airflow.sandbox.kubernetes.remote_folder import Exchanges, Secrets, open_remote_folder, task_gateway
from skillopt_airflow.sandbox.staging import Files, container_folder, stage_corpus
from skillopt_airflow.sandbox.task_workload import Workload
from skillopt_airflow.sandbox.untrusted_output import MAX_ENTRIES

CALLS_MEGABYTES = 64
READY_SECONDS = 60.0
POLL_SECONDS = 0.1
STOP_SECONDS = 5
LAST_LINES = 5

log = logging.getLogger(__name__)


@dataclass
class DockerRuntime:
    client: Any
    workload: Workload
    folder: Path
    attempt: int
    stopped: threading.Event

    def at_once(self) -> int:
        workload = self.workload
        if not workload.one_item_each:
            return 1
        memory = int(self.client.info()["MemTotal"])
        return parallel_containers(workload.limits, workload.settings.concurrency, workload.run_concurrency, memory)

    @contextmanager
    def serving(self, on_call: Callable[[ModelCall], None]) -> Iterator[None]:
        with task_gateway(self.workload, on_call) as self._gateway:
            yield

    @contextmanager
    def sandbox(self, number: int, items: Sequence[Item], files: Files) -> Iterator[Container]:
        from docker.types import Mount

        workload, image = self.workload, self._image(items)
        calls = 1 if workload.one_item_each else workload.settings.concurrency
        with (
            container_folder(self.folder / str(number), workload, items, files) as staged,
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
        # If the engine doesn't answer, the next attempt removes them.
        from docker.errors import DockerException
        from requests import RequestException

        with suppress(DockerException, RequestException):
            remove_all(self.client, identity(self.workload.labels))

    def _image(self, items: Sequence[Item]) -> str:
        return self._images.target_image(items[0]) if self.workload.one_item_each else self.workload.image

    def _plan(self, number: int, image: str, mounts: Sequence[Any] = ()) -> Plan:
        workload, limits = self.workload, self.workload.limits
        repositories = sum(item.image is not None for item in workload.items)
        seconds = task_seconds(limits, len(workload.items)) + repositories * repository_seconds(limits)
        # The expiry starts now, because building the image may take longer than the task.
        labels = identity(workload.labels) | expiry(seconds)
        labels |= {ATTEMPT_LABEL: str(self.attempt), FOLDER_LABEL: str(self.folder)}
        if workload.one_item_each:
            labels[ITEM_LABEL] = str(number)
        return Plan(image, limits, labels, mounts, has_repository=image != workload.image)

    @cached_property
    def _corpus(self) -> Path | None:
        corpus = self.workload.corpus
        return None if corpus is None else stage_corpus(corpus, self.folder.parent)

    @cached_property
    def _images(self) -> ItemImages:
        workload = self.workload
        return ItemImages(self.client, workload.image, workload.limits, workload.image_files)


@contextmanager
def open_runtime(
    workload: Workload,
    folder: Path,
    attempt: int,
    docker_url: str | None,
    exchanges: Exchanges,
    stopped: threading.Event,
) -> Iterator[DockerRuntime]:
    """Yield the runtime of the workload's engine, after removing leftovers of killed tasks.

    `docker_url` is the URL of the worker's engine; if None, the environment's.
    """
    limits = workload.limits
    engine = docker_connection.find_engine(limits.conn_id, docker_url)
    with engine.open_client() as client, docker_connection.engine_errors(engine.url):
        left = remove_all(client, identity(workload.labels)) + remove_expired(client)
        if left:
            log.warning("Removed %d containers of killed tasks", left)
        # The run has pinned its image, so nothing newer is pulled.
        docker_connection.ensure_image(client, workload.image)
        given = (client, workload, folder, attempt, stopped)
        if engine.shares_files:
            yield DockerRuntime(*given)
        else:
            yield RemoteRuntime(*given, exchanges=exchanges, network=engine.network)


@dataclass(kw_only=True)
class RemoteRuntime(DockerRuntime):
    """The `Runtime` of an engine on another machine."""

    exchanges: Exchanges
    network: str | None
    """Network of the gateway and the courier."""

    @contextmanager
    def serving(self, on_call: Callable[[ModelCall], None]) -> Iterator[None]:
        limits = self.workload.limits
        again, image = limits.renews(limits.gateway_image), limits.gateway_image
        docker_connection.ensure_image(self.client, image, again=again, knob="sandbox.registry")
        self._on_call = on_call
        # Leftovers of the previous attempt.
        self.exchanges(self._name).clear()
        yield

    @contextmanager
    def sandbox(self, number: int, items: Sequence[Item], files: Files) -> Iterator[Container]:
        workload, image = self.workload, self._image(items)
        exchange = self.exchanges(f"{self._name}/{self.attempt}-{number}-{os.urandom(3).hex()}")
        with (
            container_folder(self.folder / str(number), workload, items, files) as staged,
            open_remote_folder(workload, number, items, staged, exchange, self.at_once(), self._on_call) as (
                folder,
                secrets,
            ),
        ):
            yield RemoteContainer(
                self.client,
                self._plan(number, image),
                folder,
                self.stopped,
                secrets=secrets,
                network=self.network,
                seconds=pod.deadline(workload.limits, len(items)),
                has_corpus=workload.corpus is not None,
            )

    @property
    def _name(self) -> str:
        return pod.workload_label(identity(self.workload.labels))


@dataclass(kw_only=True)
class RemoteContainer(Container):
    """A container of the rollout program, with its courier and its gateway."""

    secrets: Secrets
    network: str | None
    seconds: int
    """Lifetime of the helpers; they end by themselves after it."""
    has_corpus: bool

    @contextmanager
    def _mounted(self) -> Iterator[Sequence[Any]]:
        gateway, courier = self.secrets
        entries = MAX_ENTRIES + sum(1 for _ in self.folder.path.rglob("*"))
        with ExitStack() as opened:

            def volume(memory: str | None = None) -> str:
                return opened.enter_context(temporary_volume(self.client, self.plan.labels, memory))

            out = volume(f"size={self.plan.limits.output_mb * MEGABYTE},nr_inodes={entries},mode=0777")
            calls = volume(f"size={CALLS_MEGABYTES * MEGABYTE},mode=0777")
            socket = volume(f"size={MEGABYTE},mode=0777")
            inputs = {"/in": volume()} | ({CORPUS_FOLDER: volume()} if self.has_corpus else {})

            # A volume in memory exists while a container mounts it. The courier ends last, so it sees all calls.
            command = pod.courier_command("deliver", "-", "/out", CALLS_PATH)
            mounts = [_mount("/out", out, read_only=True), _mount("/calls", calls, read_only=True)]
            opened.enter_context(self._helper(command, courier, mounts, grace=pod.GRACE_SECONDS))
            mounts = [_mount("/gateway", socket), _mount("/calls", calls)]
            serving = opened.enter_context(self._helper(pod.gateway_command(), gateway, mounts, grace=STOP_SECONDS))
            self._fetch(courier, {"/out": out} | inputs)
            self._await_gateway(serving)
            yield [
                _mount("/out", out),
                _mount("/gateway", socket, read_only=True),
                *(_mount(target, name, read_only=True) for target, name in inputs.items()),
            ]
            if not self._is_running(serving):
                log.error("The model gateway ended before its container, so items fail: %s", self._last_lines(serving))

    def _fetch(self, courier: JsonObject, volumes: Mapping[str, str]) -> None:
        # As root, who owns the volumes on the engine's disk.
        command = pod.courier_command("fetch", "-", "/in", "/out", *([CORPUS_FOLDER] if self.has_corpus else []))
        mounts = [_mount(target, name) for target, name in volumes.items()]
        with self._helper(command, courier, mounts, user=0) as fetch:
            status = self.client.wait(fetch, timeout=self.seconds)["StatusCode"]
            if status and not self.stopped.is_set():
                raise SandboxError(
                    f"the engine could not fetch the inputs of a container (exit status {status}): "
                    f"{self._last_lines(fetch)}. Make sure that it reaches the object store at the worker's URL."
                )

    @contextmanager
    def _helper(
        self,
        command: Sequence[str],
        document: JsonObject,
        mounts: Sequence[Any],
        *,
        user: int = pod.HELPER_UID,
        grace: int = 0,
    ) -> Iterator[str]:
        """Run a program of the gateway's image until the block ends, and yield the container's ID.

        The document contains secrets, so it's only sent through standard input. That stays open until the block ends or
        this process dies, and a gateway ends when it closes.
        """
        limits = self.plan.limits
        host = helper_options(self.network, pod.courier_megabytes(limits))
        made = self.client.create_container(
            limits.gateway_image,
            entrypoint=["timeout", str(self.seconds), *command],
            user=str(user),
            stdin_open=True,
            labels=dict(self.plan.labels),
            host_config=self.client.create_host_config(mounts=mounts, **host),
            use_config_proxy=False,
        )["Id"]
        try:
            stdin = self.client.attach_socket(made, params={"stdin": 1, "stream": 1})
            connection = getattr(stdin, "_sock", stdin)
            try:
                self.client.start(made)
                connection.sendall(json.dumps(document).encode() + b"\n")
                yield made
                self.client.stop(made, timeout=grace)
            finally:
                stdin._response.close()
                connection.close()
        finally:
            remove_container(self.client, made)

    def _await_gateway(self, gateway: str) -> None:
        end = time.monotonic() + READY_SECONDS
        while not self.stopped.wait(POLL_SECONDS):
            if not self._is_running(gateway) or time.monotonic() > end:
                raise SandboxError(f"the model gateway did not start on the engine: {self._last_lines(gateway)}")
            status, _ = execute(self.client, gateway, ["test", "-S", pod.SOCKET], user=str(pod.HELPER_UID), limit=0)
            if status == 0:
                return

    def _is_running(self, container: str) -> bool:
        return bool(self.client.inspect_container(container)["State"]["Running"])

    def _last_lines(self, container: str) -> str:
        return " | ".join(lines([self.client.logs(container, tail=LAST_LINES)])) or "no output"


def _mount(target: str, volume: str, *, read_only: bool = False) -> Any:
    from docker.types import Mount

    return Mount(target, volume, "volume", read_only=read_only, no_copy=True)
