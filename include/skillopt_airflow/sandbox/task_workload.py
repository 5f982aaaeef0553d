"""The work of one task's sandboxes, its outcomes, and its seconds."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from skillopt_airflow.core.config.resource_groups import SandboxGroup
from skillopt_airflow.core.values.types import Item, ModelCall, Trajectory
from skillopt_airflow.gateway.remaining_budget import RemainingBudget
from skillopt_airflow.gateway.upstream import Upstream
from skillopt_airflow.gateway.web_search import WebSearch
from skillopt_airflow.tasks.corpus import CorpusManifest


class Settings(Protocol):
    """The rollout program's settings that the host reads; the others pass through as JSON."""

    @property
    def call_timeout(self) -> float: ...

    @property
    def max_attempts(self) -> int: ...

    @property
    def max_tokens(self) -> int: ...

    @property
    def concurrency(self) -> int: ...

    def model_dump_json(self) -> str: ...


@dataclass(frozen=True)
class Outcome:
    trajectory: Trajectory
    files: Mapping[str, bytes] = field(default_factory=dict)
    """Contents of the trajectory's files that are plain and small enough."""


class Corpus(Protocol):
    """A folder of documents that every sandbox of a workload can read."""

    @property
    def manifest(self) -> CorpusManifest: ...

    @property
    def archive_keys(self) -> Sequence[str]:
        """Keys of the archives in the run's bucket; empty if they aren't there."""

    def archives(self) -> Iterator[bytes]:
        """Yield one tar per archive of the manifest."""


class Allotment(Protocol):
    @property
    def budget(self) -> RemainingBudget: ...

    def count(self, call: ModelCall) -> None: ...

    def complete(self) -> None:
        """Release the rest, once the gateway has ended and all its calls are counted."""


class Workload(Protocol):
    """The items of one task, and where their trajectories go."""

    @property
    def settings(self) -> Settings: ...

    @property
    def run_concurrency(self) -> int:
        """Limit of the run's concurrent model calls; `settings` contain this workload's share."""

    @property
    def skill(self) -> str: ...

    @property
    def items(self) -> Sequence[Item]:
        """Items without a stored row, the same at each call."""

    @property
    def one_item_each(self) -> bool:
        """True if each item needs a separate container, because the container executes the model's output."""

    def files(self, item: Item) -> Mapping[str, bytes]:
        """Return the item's public files by name. Only one thread calls it at a time, but during `record`, too."""

    def image_files(self, item: Item) -> Mapping[str, bytes]:
        """Return the build files of an item's image by name; only called for an item with an image."""

    @property
    def corpus(self) -> Corpus | None: ...

    @property
    def seals_files(self) -> bool:
        """True for the files of worlds, which must be gone from the container before the first item starts."""

    @property
    def upstream(self) -> Upstream:
        """The model that the container may call."""

    @property
    def search(self) -> WebSearch | None:
        """The web search behind this process's gateway; None if the run has none."""

    def allotted(self, gateways: int = 1) -> AbstractContextManager[Allotment]:
        """Yield a gateway's part of the run's budget, the same for each of the task's remaining `gateways`."""

    def release_budget(self) -> None:
        """Release the task's unspent budget; called last, after everything is recorded."""

    @property
    def image(self) -> str: ...

    @property
    def limits(self) -> SandboxGroup: ...

    @property
    def stage(self) -> str:
        """Purpose of the model calls, such as rollout, evaluate or test."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels that identify this task's containers, such as run, step and chunk; the same at every attempt."""

    @property
    def released(self) -> int | None:
        """Number of first items that may start while `is_decided` is open for the others; None for all.

        Each `is_decided` may change it. Containers of one item, and those without shared files, ignore it.
        """

    def is_decided(self) -> bool:
        """Return whether no further row can change the workload's decision.

        Called before the first container starts, after each `record`, and twice per second, because other tasks' rows
        may count. Only one thread calls it at a time, and never during `record`.
        """

    def record(self, outcomes: Sequence[Outcome], calls: Sequence[ModelCall]) -> None:
        """Score and store new outcomes; called every few seconds, by one thread at a time, and at the end."""


@dataclass(frozen=True)
class SandboxSeconds:
    wall: float
    """Seconds from staging to the last row."""
    model: float
    """Seconds in which at least one model call was under way."""

    @property
    def container(self) -> float:
        """Return the seconds without a model call: startup, the program, teardown, storing rows."""
        return max(0.0, self.wall - self.model)


def union_seconds(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the seconds covered by at least one of the intervals (start, end)."""
    total = 0.0
    covered = float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, covered))
        covered = max(covered, end)
    return total
