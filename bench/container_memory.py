"""The memory that containers take while something runs."""

import docker

POLL_SECONDS = 1.0
MEGABYTE = 1_000_000


class PeakMemory:
    """The most that the containers of an engine took at any of the looks."""

    def __init__(self, client: docker.DockerClient) -> None:
        """Take an engine that runs nothing else."""
        self.megabytes = 0.0
        """Of all its containers at one time."""
        self._client = client

    def look(self) -> None:
        """Sum up what the containers take now."""
        taken = sum(self._taken(container) for container in self._client.api.containers(quiet=True))
        self.megabytes = max(self.megabytes, taken)

    def _taken(self, container: dict[str, str]) -> float:
        try:
            stats = self._client.api.stats(container["Id"], stream=False, one_shot=True)
        except docker.errors.NotFound:
            return 0.0
        return float(stats.get("memory_stats", {}).get("usage", 0)) / MEGABYTE
