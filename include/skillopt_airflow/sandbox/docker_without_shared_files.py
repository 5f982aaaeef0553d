"""Containers on a Docker engine that does not see the worker's files.

That is an engine on another machine, and the engine of a worker that is itself a container with the engine's socket.
Inputs go in and outputs come out as archives, through volumes in the engine's memory. The gateway is a container beside
them; its socket is in a volume, so that the rollout container has no network there either. A private network of the two
would be more than it needs: on its bridge the engine's host has an address, and older engines resolve foreign names
even for networks that lead nowhere (CVE-2024-29018).
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

from skillopt_airflow.core.types import ModelCall
from skillopt_airflow.sandbox import docker_connection
from skillopt_airflow.sandbox.corpus_volume import FOLDER, filled_volume
from skillopt_airflow.sandbox.docker_exec import memory_volume, waiting
from skillopt_airflow.sandbox.docker_limits import MEGABYTE, container_seconds, host_options
from skillopt_airflow.sandbox.docker_runtime import DockerRuntime
from skillopt_airflow.sandbox.gateway_container import GatewayContainer
from skillopt_airflow.sandbox.labels import GRACE_SECONDS, expiry, identity, reap, remove_all, remove_container
from skillopt_airflow.sandbox.staging import ContainerFolder, CopiedFolder, TaskFolder, container_user
from skillopt_airflow.sandbox.tar_archive import packed, plain_files, refusing, unpack
from skillopt_airflow.sandbox.task_workload import Workload

MAX_ENTRIES = 10_000
PAGE = 4096
"""Bytes by which files in memory grow on x86-64 and on most ARM machines."""
SOCKET_FOLDER = "/gateway"
IN_THE_WAY = "not a directory"
NOT_SEEN = ("does not exist", "no such file or directory", "permission denied")
"""An engine's words about a path that it cannot mount; the last are those of an engine that another user runs."""

log = logging.getLogger(__name__)


@contextmanager
def opened_runtime(
    workload: Workload, folder: TaskFolder, attempt: int, docker_url: str | None, stopped: threading.Event
) -> Iterator[DockerRuntime]:
    """Yield the runtime of the workload's engine, after removing what killed tasks left there.

    Args:
        workload: what is to run; its limits may name the connection of a remote engine.
        folder: the attempt's folder.
        attempt: its number.
        docker_url: address of the worker's own engine; that of its environment when None.
        stopped: set when the task is stopped.

    Raises:
        SandboxError: or EngineUnavailable or ImageMissing, as the engine says.
    """
    limits = workload.limits
    engine = docker_connection.found(limits.docker_conn_id, docker_url)
    with docker_connection.reached(engine.url):
        client = docker_connection.kept_alive(engine.hook.api_client)
        left = remove_all(client, identity(workload.labels)) + reap(client)
    if left:
        log.warning("Removed %d container(s) that killed tasks left behind", left)
    with closing(client), docker_connection.judged(engine.url):
        # The run has pinned its image: if it is missing here, it is that very one that has to be pulled.
        docker_connection.ensure_image(client, workload.image, "never" if limits.pull == "never" else "missing")
        yield runtime_of(client, workload, folder, attempt, engine.network, stopped)


def runtime_of(
    client: Any, workload: Workload, folder: TaskFolder, attempt: int, network: str | None, stopped: threading.Event
) -> DockerRuntime:
    """Return the runtime for an engine: by the connection that leads to it, or else by whether it sees a probe file."""
    shared = workload.limits.docker_conn_id is None and sees_files(client, workload, folder.path)
    return (DockerRuntime if shared else DockerWithoutSharedFiles)(client, workload, folder, attempt, network, stopped)


def sees_files(client: Any, workload: Workload, folder: Path) -> bool:
    """Return whether the engine sees a folder of the worker's, by asking it to mount what lies below a file there.

    It refuses that at once, and says whether the file is in the way or not there; no container is made.

    Raises:
        APIError: the engine refused it for another reason.
    """
    from docker.errors import APIError
    from docker.types import Mount

    probe = folder / "probe"
    probe.touch()
    mounts = [Mount("/in", str(probe / "in"), "bind", read_only=True)]
    config = client.create_host_config(mounts=mounts, network_mode="none")
    labels = identity(workload.labels) | expiry(0)
    try:
        made = client.create_container(workload.image, host_config=config, labels=labels, use_config_proxy=False)
    except APIError as error:
        if IN_THE_WAY in str(error):
            return True
        if not any(words in str(error) for words in NOT_SEEN):
            raise
        log.info("The Docker engine does not see the worker's files, which travel as archives now: %s", error)
    else:
        # It made the folders that it missed, so there was no file.
        remove_container(client, made["Id"])
    finally:
        probe.unlink()
    return False


def _room(folder: Path) -> tuple[int, int]:
    """Return the bytes that the task's own folder takes in a volume in memory, in whole pages, and its entries."""
    paths = list(folder.rglob("*"))
    pages = sum(-(-path.stat().st_size // PAGE) for path in paths if path.is_file())
    return pages * PAGE, len(paths)


class DockerWithoutSharedFiles(DockerRuntime):
    """The `Runtime` of an engine that cannot mount the worker's folders."""

    _sockets = ""
    """Volume of the gateway's socket."""

    @contextmanager
    def serving(self, on_call: Callable[[ModelCall], None]) -> Iterator[None]:
        """Serve the model from a container on the engine for as long as the block runs."""
        with self._volume(MEGABYTE, "0777") as self._sockets, self.workload.allotted() as allotment:
            gateway = GatewayContainer(self.client, self.workload, self.labels, self.network, allotment, on_call)
            with gateway.listening(_mount(SOCKET_FOLDER, self._sockets)):
                yield

    @contextmanager
    def _mounted(self, folder: ContainerFolder) -> Iterator[tuple[ContainerFolder, list[Any]]]:
        """Yield the folder that output is fetched to, and the mounts of volumes that hold copies of the folders."""
        most, (size, entries) = self.workload.limits.output_mb * MEGABYTE, _room(folder.inputs)
        with (
            self._volume(size + MEGABYTE, "0755", entries) as in_volume,
            self._volume(most, "0777", _room(folder.outputs)[1]) as out_volume,
            self._keeper([_mount("/in", in_volume), _mount("/out", out_volume)]) as keeper,
        ):
            self.client.put_archive(keeper, "/in", packed(folder.inputs))
            self.client.put_archive(keeper, "/out", packed(folder.outputs))
            mounts = [
                _mount("/in", in_volume, read_only=True),
                _mount("/out", out_volume),
                _mount(SOCKET_FOLDER, self._sockets, read_only=True),
                *self._corpus_mounts,
            ]
            yield FetchedFolder(folder.path, self.client, keeper, most), mounts

    @cached_property
    def _corpus_mounts(self) -> list[Any]:
        """The mount of the volume that holds the run's corpus, if it has one."""
        corpus, beside = self.workload.corpus, self.folder.path.parent
        if corpus is None:
            return []
        volume = filled_volume(self.client, corpus, beside, lambda name: self._keeper([_mount(FOLDER, name)]))
        return [_mount(FOLDER, volume, read_only=True)]

    def _volume(self, size: int, mode: str, entries: int = 0) -> AbstractContextManager[str]:
        """Make a volume in memory for so many bytes, and for MAX_ENTRIES more than so many entries."""
        options = f"size={size},nr_inodes={entries + MAX_ENTRIES},mode={mode}"
        return memory_volume(self.client, options, self.labels)

    def _keeper(self, mounts: list[Any]) -> AbstractContextManager[str]:
        """Run a container through which archives go; memory volumes last while one mounts them."""
        limits = self.workload.limits
        seconds = container_seconds(limits, len(self.workload.items)) + GRACE_SECONDS
        host = {"mounts": mounts, **host_options(limits)}
        return waiting(self.client, self.workload.image, seconds, user=container_user(), labels=self.labels, **host)


class FetchedFolder(CopiedFolder):
    """The task's copy of what a container wrote elsewhere."""

    def __init__(self, path: Path, client: Any, keeper: str, most: int) -> None:
        super().__init__(path)
        self._client, self._keeper, self._most = client, keeper, most
        self._seen: Any = None

    def _fetch(self) -> None:
        """Fetch the files that rows name, and then the rows; what cannot be taken is left where it is.

        Raises:
            RequestException: the engine did not give what an ended container left; docker's APIError is one.
        """
        from requests import RequestException

        try:
            self._copy()
        except RequestException as error:
            if self.ended:
                raise
            log.warning("The engine did not give the container's output, and is asked again: %s", error)

    def _copy(self) -> None:
        """Read rows before the files that they name, and write them after: a row is judged by its files."""
        rows = None
        with _archived(self._client, self._keeper, "/out/trajectories.jsonl") as (chunks, found):
            version = (found.get("size"), found.get("mtime"))
            if not found or version == self._seen:
                return
            with refusing():
                contents = [content for _, content in plain_files(chunks, self._most)]
                if not contents:
                    raise OSError("trajectories.jsonl is not a plain file")
                rows = contents[0]
        if rows is not None:
            with _archived(self._client, self._keeper, "/out/files") as (chunks, _):
                unpack(chunks, self.files, self._most, below="files/")
            self.trajectories.write_bytes(rows)
        self._seen = version


@contextmanager
def _archived(client: Any, container: str, path: str) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """Yield the tar of a path and Docker's stat of it, both empty if nothing is there."""
    from docker.errors import NotFound

    try:
        chunks, found = client.get_archive(container, path)
    except NotFound:
        yield iter(()), {}
        return
    with closing(chunks):
        yield chunks, found


def _mount(target: str, volume: str, *, read_only: bool = False) -> Any:
    from docker.types import Mount

    return Mount(target, volume, "volume", read_only=read_only, no_copy=True)
