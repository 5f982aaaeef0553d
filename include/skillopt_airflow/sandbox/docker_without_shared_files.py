"""Containers on an engine that is far away: nothing of the worker's can be mounted there, and no socket reaches it.

Inputs go in and outputs come out as archives, through volumes in that engine's memory. The gateway is a container
beside them; its socket lies in a volume, so that the rollout container has no network there either. A private network
of the two would be more than it needs: on its bridge the engine's host has an address, and an older engine resolves
foreign names even for networks that lead nowhere (CVE-2024-29018).
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

from skillopt_airflow.core.types import Item, ModelCall
from skillopt_airflow.sandbox.docker_limits import MEGABYTE, host_options, task_seconds
from skillopt_airflow.sandbox.gateway_container import GatewayContainer
from skillopt_airflow.sandbox.labels import FOLDER_LABEL, GRACE_SECONDS, expiry, remove_container
from skillopt_airflow.sandbox.staging import ContainerFolder, Files, TaskFolder, container_user
from skillopt_airflow.sandbox.tar_archive import packed, plain_files
from skillopt_airflow.sandbox.task_workload import Workload

FETCH_SECONDS = 2.0
MAX_ENTRIES = 10_000
SOCKET_FOLDER = "/gateway"

log = logging.getLogger(__name__)


class RemoteSite:
    """The `Site` of an engine that an Airflow connection leads to; `network` is the one of the gateway there."""

    def __init__(
        self, client: Any, workload: Workload, folder: TaskFolder, labels: Mapping[str, str], network: str | None
    ) -> None:
        self._client = client
        self._workload = workload
        self._folder = folder
        self.labels = {FOLDER_LABEL: str(folder.path)}
        """What the containers get beside the labels of their workload."""
        containers = len(workload.items) if workload.one_item_each else 1
        life = expiry(task_seconds(workload.limits, containers))
        self._labels = {**labels, **self.labels, **life}
        self._network = network
        self._sockets = ""

    @contextmanager
    def gateway(self, on_call: Callable[[ModelCall], None]) -> Iterator[None]:
        """The model gateway, which listens as long as the block runs."""
        with self._volume(MEGABYTE, "0777") as self._sockets:
            satellite = GatewayContainer(self._client, self._workload, self._labels, self._network, on_call)
            with satellite.listening(_mount(SOCKET_FOLDER, self._sockets)):
                yield

    @contextmanager
    def stage(self, name: str, items: Sequence[Item], files: Files) -> Iterator[tuple[ContainerFolder, list[Any]]]:
        """The folders of one container, filled, and how they are mounted; gone afterwards."""
        most = self._workload.limits.output_mb * MEGABYTE
        with self._folder.container(name, self._workload, items, files) as mirror:
            inputs = packed(mirror.inputs)
            with (
                self._volume(len(inputs) + MEGABYTE, "0755") as in_volume,
                self._volume(most, "0777") as out_volume,
                self._keeper([_mount("/in", in_volume), _mount("/out", out_volume)]) as keeper,
            ):
                self._client.put_archive(keeper, "/in", inputs)
                self._client.put_archive(keeper, "/out", packed(mirror.outputs))
                yield (
                    FetchedFolder(mirror.folder, self._client, keeper, most),
                    [
                        _mount("/in", in_volume, read_only=True),
                        _mount("/out", out_volume),
                        _mount(SOCKET_FOLDER, self._sockets, read_only=True),
                    ],
                )

    @contextmanager
    def _volume(self, size: int, mode: str) -> Iterator[str]:
        """A volume in the engine's memory, of so many bytes, which the engine enforces."""
        from docker.errors import APIError

        options = f"size={size},nr_inodes={MAX_ENTRIES},mode={mode},nosuid,nodev,noexec"
        made = self._client.create_volume(
            driver="local", driver_opts={"type": "tmpfs", "device": "tmpfs", "o": options}, labels=self._labels
        )
        try:
            yield str(made["Name"])
        finally:
            # A killed task's volumes are gone by now.
            with suppress(APIError):
                self._client.remove_volume(made["Name"], force=True)

    @contextmanager
    def _keeper(self, mounts: list[Any]) -> Iterator[str]:
        """A container that only waits: archives go through it, and a volume's memory is kept as long as one has it."""
        limits = self._workload.limits
        made = self._client.create_container(
            self._workload.image,
            entrypoint=["sleep", str(limits.timeout + GRACE_SECONDS)],
            user=container_user(),
            labels=self._labels,
            host_config=self._client.create_host_config(mounts=mounts, **host_options(limits)),
            use_config_proxy=False,
        )
        try:
            self._client.start(made["Id"])
            yield str(made["Id"])
        finally:
            remove_container(self._client, made["Id"])


class FetchedFolder(ContainerFolder):
    """The task's copy of what a container far away wrote, which `fetch` brings up to date."""

    def __init__(self, folder: Path, client: Any, keeper: str, most: int) -> None:
        super().__init__(folder)
        self._client = client
        self._keeper = keeper
        self._most = most
        self._next = 0.0
        self._seen: Any = None

    def fetch(self) -> None:
        """Bring the files that rows name, and then the rows; what cannot be taken is left where it is.

        Raises:
            RequestException: the engine did not give what a container left that has ended; docker's APIError is one.
        """
        from requests import RequestException

        if not self.ended and time.monotonic() < self._next:
            return
        self._next = time.monotonic() + FETCH_SECONDS
        try:
            self._fetch()
        except RequestException as error:
            if self.ended:
                raise
            log.warning("The engine did not give the container's output, and is asked again: %s", error)

    def _fetch(self) -> None:
        """Rows are read before the files, which they name, and written after them: a row is judged by its files."""
        rows = None
        with self._archive("/out/trajectories.jsonl") as (chunks, found):
            version = (found.get("size"), found.get("mtime"))
            if not found or version == self._seen:
                return
            with _refusing():
                rows = self._rows(chunks)
        if rows is not None:
            with _refusing():
                self._fetch_files()
            self.trajectories.write_bytes(rows)
        self._seen = version

    def _rows(self, chunks: Any) -> bytes:
        contents = [content for _, content in plain_files(chunks, self._most)]
        if not contents:
            raise OSError("trajectories.jsonl is not a plain file")
        return contents[0]

    def _fetch_files(self) -> None:
        with self._archive("/out/files") as (chunks, found):
            if not found:
                return
            for path, content in plain_files(chunks, self._most):
                _, *inner = path.split("/")
                # The folders of the items are there; nothing else is made.
                if len(inner) == 2 and inner[0].isdecimal() and inner[1] not in ("", ".", ".."):
                    target = self.outputs / "files" / inner[0]
                    if target.is_dir():
                        (target / inner[1]).write_bytes(content)

    def _archive(self, path: str) -> AbstractContextManager[tuple[Any, Mapping[str, Any]]]:
        return _archived(self._client, self._keeper, path)


@contextmanager
def _refusing() -> Iterator[None]:
    """Leave out what the container made unreadable; what the engine did not give is not the container's doing."""
    from requests import RequestException

    try:
        yield
    except RequestException:
        raise
    except OSError as error:
        log.warning("Refused the container's output: %s", error)


@contextmanager
def _archived(client: Any, container: str, path: str) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """The tar of a path and Docker's stat of it, which is empty if nothing is there."""
    from docker.errors import NotFound

    try:
        chunks, found = client.get_archive(container, path)
    except NotFound:
        yield iter(()), {}
        return
    try:
        yield chunks, found
    finally:
        chunks.close()


def _mount(target: str, volume: str, *, read_only: bool = False) -> Any:
    from docker.types import Mount

    return Mount(target, volume, "volume", read_only=read_only, no_copy=True)
