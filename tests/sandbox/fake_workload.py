"""A workload and an operator for tests: items without a store, rows that stay in memory."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker
from docker.errors import APIError

from skillopt_airflow.core.config.harnesses import HARNESSES
from skillopt_airflow.core.config.resource_groups import SandboxGroup
from skillopt_airflow.core.values.types import Item, ModelCall, Status, Trajectory
from skillopt_airflow.gateway.remaining_budget import RemainingBudget
from skillopt_airflow.gateway.upstream import Upstream
from skillopt_airflow.rollout.settings import RolloutSettings
from skillopt_airflow.sandbox.docker.container import identity
from skillopt_airflow.sandbox.operator import RolloutOperator
from skillopt_airflow.sandbox.task_workload import Corpus, Outcome, SandboxSeconds, Workload
from skillopt_airflow.store.objects import ExchangeFolder, ObjectStore
from tests.gateway.scripted_provider import Asked, Reply, completion

KEY = "sk-never-inside-a-sandbox"
SECRET_ANSWER = "the-reference-answer"


@dataclass
class FakeWorkload:
    items: Sequence[Item]
    upstream: Upstream
    settings: RolloutSettings
    limits: SandboxGroup
    labels: Mapping[str, str]
    skill: str = "Answer in few words."
    stage: str = "rollout"
    trajectories: list[Trajectory] = field(default_factory=list)
    left: dict[str, Mapping[str, bytes]] = field(default_factory=dict)
    """Files that came out, by item."""
    public_files: Mapping[str, bytes] = field(default_factory=dict)
    """Files of every item."""
    files_of_images: Mapping[str, bytes] = field(default_factory=dict)
    """What the image of every item that has one is built from."""
    calls: list[ModelCall] = field(default_factory=list)
    on_record: Callable[[Sequence[Trajectory]], None] = lambda _: None
    released: int | None = None
    is_settled: Callable[[], bool] = lambda: False
    search: Any = None
    image: str = HARNESSES["chat"].image
    one_item_each: bool = False
    seals_files: bool = False
    run_concurrency: int = 64
    corpus: Corpus | None = None
    allowance: RemainingBudget = field(default_factory=RemainingBudget)
    counted: list[ModelCall] = field(default_factory=list)
    """Calls of the part of the budget that the workload plays."""
    is_complete: bool = False
    is_given_back: bool = False
    ahead: list[int] = field(default_factory=list)
    """By how many each question that `answer` got was ahead of the recorded rows."""

    def answer(self, asked: Asked) -> Reply:
        self.ahead.append(asked.number - len(self.trajectories))
        return answer_all(asked)

    def files(self, item: Item) -> Mapping[str, bytes]:
        return self.public_files

    def image_files(self, item: Item) -> Mapping[str, bytes]:
        return self.files_of_images

    def allotted(self, gateways: int = 1) -> AbstractContextManager["FakeWorkload"]:
        return nullcontext(self)

    @property
    def budget(self) -> RemainingBudget:
        return self.allowance

    def count(self, call: ModelCall) -> None:
        self.counted.append(call)

    def complete(self) -> None:
        self.is_complete = True

    def release_budget(self) -> None:
        self.is_given_back = True

    def is_decided(self) -> bool:
        return self.is_settled()

    def record(self, outcomes: Sequence[Outcome], calls: Sequence[ModelCall]) -> None:
        trajectories = [one.trajectory for one in outcomes]
        self.trajectories += trajectories
        self.left |= {one.trajectory.item_id: one.files for one in outcomes if one.files}
        self.calls += calls
        self.on_record(trajectories)

    def statuses(self) -> dict[str, Status]:
        return {trajectory.item_id: trajectory.status for trajectory in self.trajectories}


class FakeOperator(RolloutOperator):
    def __init__(
        self, *, fake: FakeWorkload, store: ObjectStore | None = None, docker_url: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(task_id="rollout", **kwargs)
        self.fake, self.store, self.docker_url = fake, store, docker_url

    def workload(self, context: Any) -> Workload:
        return self.fake

    def exchange(self, name: str) -> ExchangeFolder:
        assert self.store is not None
        return ExchangeFolder(self.store, f"sandboxes/{name}/")

    def result(self, workload: Workload, seconds: SandboxSeconds) -> Any:
        return {"wall": seconds.wall, "model": seconds.model, "container": seconds.container}


def answer_all(asked: Asked) -> Reply:
    return completion("<answer>Eiffel</answer>")


def leftovers(client: docker.DockerClient, workload: FakeWorkload) -> list[Any]:
    wanted = [f"{name}={value}" for name, value in identity(workload.labels).items()]
    return client.containers.list(all=True, filters={"label": wanted}, ignore_removed=True)


def processes_of(client: docker.DockerClient, container: Any) -> list[str]:
    """What /proc says of a container's processes, their environment and words; nothing of what has ended meanwhile."""
    try:
        listed = client.api.top(container.id, ps_args="-eo pid,args")["Processes"]
    except APIError:
        return []
    told = []
    for pid, *_ in listed or ():
        with suppress(FileNotFoundError, ProcessLookupError):
            told += [Path("/proc", pid, name).read_text(errors="replace") for name in ("environ", "cmdline")]
    return told
