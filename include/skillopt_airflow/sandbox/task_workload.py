"""The work that a caller gives to sandboxes, what comes out, and how long it took."""

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
    """The part of the program's settings that the host acts on; the rest passes through as JSON."""

    @property
    def call_timeout(self) -> float:
        """Seconds that one try of a model call may take."""

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
    """Contents of the files that the trajectory names and that were found to be plain and small enough."""


class Corpus(Protocol):
    """A folder of documents that every sandbox of a workload can read."""

    @property
    def manifest(self) -> CorpusManifest: ...

    @property
    def archive_keys(self) -> Sequence[str]:
        """Keys of the archives in the run's bucket; none if they are not there."""

    def archives(self) -> Iterator[bytes]:
        """Yield a tar for each of the manifest's archives."""


class Allotment(Protocol):
    @property
    def budget(self) -> RemainingBudget: ...

    def count(self, call: ModelCall) -> None: ...

    def complete(self) -> None:
        """Free what it has not spent: it has ended, and every call of it is counted."""


class Workload(Protocol):
    """The items of one task, and where their trajectories go."""

    @property
    def settings(self) -> Settings: ...

    @property
    def run_concurrency(self) -> int:
        """Model calls that the whole run may have in flight, of which `settings` have this workload's share."""

    @property
    def skill(self) -> str: ...

    @property
    def items(self) -> Sequence[Item]:
        """Items that have no stored row yet, the same at each call; none means that no container is needed."""

    @property
    def one_item_each(self) -> bool:
        """True if every item gets a container of its own, because what the model writes is executed there."""

    def files(self, item: Item) -> Mapping[str, bytes]:
        """Return the contents of the item's public files by name; one thread calls it at a time, beside `record`."""

    def image_files(self, item: Item) -> Mapping[str, bytes]:
        """Return what an item's own image is built from, by name; only called for an item that has such an image."""

    @property
    def corpus(self) -> Corpus | None: ...

    @property
    def seals_files(self) -> bool:
        """True if the files are those of worlds, which nothing in the container may find once the items begin."""

    @property
    def upstream(self) -> Upstream:
        """The model that the container may call."""

    @property
    def search(self) -> WebSearch | None:
        """The search that the container may ask, through the gateway in this process; None if the run has none."""

    def allotted(self, gateways: int = 1) -> AbstractContextManager[Allotment]:
        """Yield a part of the run's budget for as long as a gateway spends from it; raise StoreError.

        Args:
            gateways: those of the task that are still to come, this one included; each gets as much.
        """

    def settle(self) -> None:
        """Free what the task holds of the budget and has not spent; called last, when all is recorded."""

    @property
    def image(self) -> str: ...

    @property
    def limits(self) -> SandboxGroup: ...

    @property
    def stage(self) -> str:
        """Purpose of the model calls, such as rollout, evaluate or test."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels that only this task's containers have, such as run, step and chunk; the same at every attempt."""

    @property
    def released(self) -> int | None:
        """Items, from the first, that may begin before it is known whether the others matter; None for all of them.

        Each `settled` may change it. Containers of an item each, and those that share no files with the worker, begin
        all.
        """

    def settled(self) -> bool:
        """Return whether no further row can change the decision that the workload is for, so that it may be ended.

        Called before the first container starts, after rows were recorded, and twice a second, because the rows of
        other tasks may count. One thread calls it at a time, and never while `record` runs.
        """

    def record(self, outcomes: Sequence[Outcome], calls: Sequence[ModelCall]) -> None:
        """Score and store what is new; called every few seconds, by one thread at a time, last at the end."""


@dataclass(frozen=True)
class SandboxSeconds:
    """Wall seconds of one task's containers."""

    wall: float
    """Seconds from staging to the last row."""
    model: float
    """Seconds in which at least one model call was under way."""

    @property
    def container(self) -> float:
        """Return the seconds without a model call under way: start-up, the program, tear-down, storing rows."""
        return max(0.0, self.wall - self.model)


def union_seconds(intervals: Iterable[tuple[float, float]]) -> float:
    """Return the seconds covered by at least one of the intervals (start, end)."""
    total = 0.0
    reached = float("-inf")
    for start, end in sorted(intervals):
        total += max(0.0, end - max(start, reached))
        reached = max(reached, end)
    return total
