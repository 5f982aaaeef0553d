"""The memory that containers take while something runs."""

import threading
from types import TracebackType

import docker

POLL_SECONDS = 1.0
MEGABYTE = 1_000_000


class PeakMemory:
    """Watches an engine while it is entered."""

    def __init__(self, client: docker.DockerClient) -> None:
        """Take an engine that runs nothing else."""
        self.megabytes = 0.0
        """The most that all its containers took at one time."""
        self._client = client
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the watch."""
        self._ended.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._ended.wait(POLL_SECONDS):
            taken = sum(self._taken(container) for container in self._client.api.containers(quiet=True))
            self.megabytes = max(self.megabytes, taken)

    def _taken(self, container: dict[str, str]) -> float:
        try:
            stats = self._client.api.stats(container["Id"], stream=False, one_shot=True)
        except docker.errors.NotFound:
            return 0.0
        return float(stats.get("memory_stats", {}).get("usage", 0)) / MEGABYTE
