"""A sandbox's runtime without an engine: the gateway in this process, and a sandbox that the caller makes."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from skillopt_airflow.core.types import Item, ModelCall
from skillopt_airflow.sandbox.container_loop import Sandbox
from skillopt_airflow.sandbox.corpus_cache import beside_the_worker
from skillopt_airflow.sandbox.gateway_container import task_gateway
from skillopt_airflow.sandbox.staging import ContainerFolder, Files, TaskFolder
from skillopt_airflow.training.workload import ChunkWorkload


@dataclass
class LocalRuntime:
    """Runs one sandbox after the other."""

    work: ChunkWorkload
    folder: TaskFolder
    make: Callable[[ContainerFolder, Path], Sandbox]
    """Makes a sandbox of its folder and the gateway's socket; nothing of it outlives its run."""

    def at_once(self) -> int:
        """Return how many sandboxes run at the same time."""
        return 1

    def serving(self, on_call: Callable[[ModelCall], None]) -> AbstractContextManager[None]:
        """Run the gateway."""
        return task_gateway(self.work, self.folder, on_call)

    @contextmanager
    def sandbox(self, number: int, items: Sequence[Item], files: Files) -> Iterator[Sandbox]:
        """Yield a sandbox with its folder filled."""
        with self.folder.container(str(number), self.work, items, files) as folder:
            folder.corpus = beside_the_worker(self.work, self.folder)
            yield self.make(folder, self.folder.socket)

    def remove_all(self) -> None:
        """Remove nothing: a sandbox ends with its run."""
