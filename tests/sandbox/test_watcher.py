import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest

from skillopt_airflow.core.errors import StoreError
from skillopt_airflow.core.resource_groups import SandboxGroup
from skillopt_airflow.core.types import Item, ModelCall, Status, Trajectory
from skillopt_airflow.sandbox import watcher as watcher_module
from skillopt_airflow.sandbox.staging import ContainerFolder, TaskFolder
from skillopt_airflow.sandbox.task_workload import Outcome, Workload
from skillopt_airflow.sandbox.watcher import Watch, Watcher

PATIENCE = 60


@dataclass
class Work:
    """The part of a workload that a watcher acts on."""

    count: int
    released: int | None = None
    limits: SandboxGroup = field(default_factory=SandboxGroup)
    one_item_each: bool = False
    is_settled: Callable[["Work"], bool] = lambda work: False
    rows: list[Trajectory] = field(default_factory=list)
    calls: list[ModelCall] = field(default_factory=list)
    asked: int = 0
    recorded: threading.Event = field(default_factory=threading.Event)

    @property
    def items(self) -> list[Item]:
        return [Item(id=f"i-{n}", public={}, reference={}) for n in range(self.count)]

    def record(self, outcomes: Sequence[Outcome], calls: Sequence[ModelCall]) -> None:
        self.rows += [one.trajectory for one in outcomes]
        self.calls += calls
        self.recorded.set()

    def settled(self) -> bool:
        self.asked += 1
        return self.is_settled(self)


class Container:
    """Writes a row an item until it is killed."""

    def __init__(self, folder: TaskFolder, work: Work) -> None:
        self.folder = ContainerFolder(folder.path)
        self.work = work
        self.killed = threading.Event()
        self.kills_in_vain = 0
        self.kills_unanswered = 0

    def kill(self) -> bool:
        if self.kills_unanswered:
            self.kills_unanswered -= 1
            raise ConnectionError("the engine does not answer")
        if self.kills_in_vain:
            self.kills_in_vain -= 1
            return False
        self.killed.set()
        return True

    def run(self, line: Callable[[int], str] = lambda n: f'{{"item_id": "i-{n}", "status": "ok"}}') -> bool:
        """Whether it came to its end by itself."""
        for number in range(self.work.count):
            if self.killed.wait(0.05):
                return False
            with self.folder.trajectories.open("a") as out:
                out.write(line(number) + "\n")
        return True


@pytest.fixture
def folder(tmp_path: Path) -> TaskFolder:
    folder = TaskFolder(tmp_path)
    own = ContainerFolder(tmp_path)
    for path in (own.inputs, own.outputs):
        path.mkdir()
    return folder


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds()


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watcher_module, "POLL_SECONDS", 0.05)


class Following:
    """A watcher and the one container that it follows."""

    def __init__(self, work: Work, folder: TaskFolder, container: Container) -> None:
        self.stopped = threading.Event()
        self.watcher = Watcher(cast("Workload", work), self.stopped)
        self.watcher.start()
        self.watch = self.watcher.watch(work.items, container.folder, container.kill)

    def finish(self, why: str) -> None:
        self.watcher.end(self.watch, why)
        self.watcher.stop()
        self.watcher.finish()


def test_a_container_has_its_time_anew_whenever_an_item_ends(folder, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(watcher_module.time, "monotonic", lambda: clock[0])
    work, container = Work(count=3, limits=SandboxGroup(timeout=10)), Container(folder, Work(count=3))
    watch = Watch(work.items, container.folder, work.limits, container.kill)
    watch.begin()
    for number in range(2):
        clock[0] += 9
        with container.folder.trajectories.open("a") as out:
            out.write(f'{{"item_id": "i-{number}", "status": "ok"}}\n')
        assert len(watch.read()) == 1
        watch.check_time()
        assert not container.killed.is_set()
    clock[0] += 11
    assert watch.read() == []
    watch.check_time()
    assert container.killed.is_set()
    assert [one.trajectory.item_id for one in watch.unfinished()] == []
    watch.ended = "gone"
    assert [one.trajectory.error for one in watch.unfinished()] == [
        "the container was stopped: no item ended for 10 s (sandbox.timeout)"
    ]


def call() -> ModelCall:
    numbers: dict[str, Any] = {
        "attempts": 1,
        "prompt_tokens": 1,
        "completion_tokens": 1,
        "started": 0.0,
        "seconds": 1.0,
    }
    return ModelCall(role="target", stage="evaluate", model="m", http_status=200, **numbers)


@pytest.mark.usefixtures("often")
def test_items_are_released_as_the_workload_says_after_each_look(folder):
    work = Work(count=6, released=2)
    container = Container(folder, work)
    told = container.folder.inputs / "released"
    following = Following(work, folder, container)
    assert told.read_text() == "2"
    work.released = 5
    assert eventually(lambda: told.read_text() == "5")
    work.released = 3
    assert eventually(lambda: told.read_text() == "3")
    following.finish("")


@pytest.mark.parametrize(("released", "each"), [(None, False), (2, True)])
def test_where_nothing_is_held_back_the_program_is_told_nothing(folder, released, each):
    work = Work(count=2, released=released, one_item_each=each)
    container = Container(folder, work)
    Following(work, folder, container).finish("")
    assert list(container.folder.inputs.iterdir()) == []


@pytest.mark.usefixtures("often")
def test_a_settled_workload_ends_its_container_and_leaves_the_rest_out(folder, caplog):
    caplog.set_level(logging.INFO)
    work = Work(count=200, is_settled=lambda work: len(work.rows) >= 7)
    container = Container(folder, work)
    container.kills_in_vain = 2
    following = Following(work, folder, container)
    ended = container.run()
    following.finish("the container ended with exit status 137 before it finished the item")

    assert not ended
    assert container.killed.is_set()
    assert 7 <= len(work.rows) < 200
    assert {row.status for row in work.rows} == {Status.OK}
    left_out = 200 - len(work.rows)
    assert f"{left_out} of 200 items were left out: they can decide nothing any more" in caplog.messages


@pytest.mark.usefixtures("often")
def test_rows_of_other_containers_can_settle_a_workload_too(folder):
    settled = threading.Event()
    work = Work(count=3, is_settled=lambda _: settled.is_set())
    container = Container(folder, work)
    following = Following(work, folder, container)
    settled.set()
    assert container.killed.wait(PATIENCE)
    following.finish("the container ended")

    assert following.watcher.settled
    assert work.rows == []


@pytest.mark.usefixtures("often")
def test_an_engine_that_does_not_answer_is_asked_again_to_end_a_container(folder):
    work = Work(count=200, is_settled=lambda work: bool(work.rows))
    container = Container(folder, work)
    container.kills_unanswered = 2
    following = Following(work, folder, container)

    assert not container.run()
    following.finish("the container ended")
    assert following.watcher.settled


@pytest.mark.usefixtures("often")
def test_what_asking_raises_ends_the_container_and_reaches_the_task(folder):
    def broken(work: Work) -> bool:
        if work.rows:
            raise StoreError("no bucket")
        return False

    work = Work(count=200, is_settled=broken)
    container = Container(folder, work)
    container.kills_in_vain = 1
    following = Following(work, folder, container)
    assert not container.run()

    with pytest.raises(StoreError, match="no bucket"):
        following.finish("the container ended")
    assert {row.status for row in work.rows} == {Status.OK}


def test_what_the_store_did_not_take_is_paid_for_and_stored_at_the_end(folder, monkeypatch):
    work = Work(count=2)
    container = Container(folder, work)
    taken, refusals = work.record, [StoreError("no bucket")]

    def record(outcomes: Sequence[Outcome], calls: Sequence[ModelCall]) -> None:
        if refusals:
            raise refusals.pop()
        taken(outcomes, calls)

    monkeypatch.setattr(work, "record", record)
    container.run()
    following = Following(work, folder, container)
    following.watcher.on_call(call())
    with pytest.raises(StoreError, match="no bucket"):
        following.finish("the container ended")
    assert [row.item_id for row in work.rows] == ["i-0", "i-1"]
    assert len(work.calls) == 1


def test_what_the_store_did_not_take_is_handed_over_again_as_it_was(folder, monkeypatch):
    work = Work(count=2)
    container = Container(folder, work)
    handed: list[tuple[list[Outcome], list[ModelCall]]] = []
    refused = threading.Event()

    def record(outcomes: Sequence[Outcome], calls: Sequence[ModelCall]) -> None:
        handed.append(([*outcomes], [*calls]))
        if len(handed) == 1:
            refused.set()
            raise StoreError("no answer")

    monkeypatch.setattr(work, "record", record)
    container.run()
    following = Following(work, folder, container)
    assert refused.wait(PATIENCE)
    following.watcher.on_call(call())
    with pytest.raises(StoreError, match="no answer"):
        following.finish("the container ended")
    assert handed[0] == handed[1]
    assert sum(len(calls) for _, calls in handed[1:]) == 1


def test_what_a_stopped_task_can_no_longer_read_hides_no_reason_and_loses_no_call(folder):
    """Its containers are gone, and an engine far away cannot give what they left."""
    work = Work(count=1)
    container = Container(folder, work)
    following = Following(work, folder, container)
    following.watcher.on_call(call())

    def gone() -> None:
        raise ConnectionError("the container is marked for removal")

    container.folder.fetch = gone
    following.stopped.set()
    following.finish("the task was stopped")

    assert isinstance(following.watcher.error, ConnectionError)
    assert len(work.calls) == 1


def test_a_refused_line_does_not_hold_up_the_items_behind_it(folder):
    work = Work(count=3)
    container = Container(folder, work)
    following = Following(work, folder, container)
    ended = container.run(lambda n: f'{{"item_id": "i-{n}", "status": "{"well" if n == 1 else "ok"}"}}')
    following.finish("the container ended")

    assert ended
    assert {row.item_id: row.status for row in work.rows} == {
        "i-0": Status.OK,
        "i-1": Status.SANDBOX_ERROR,
        "i-2": Status.OK,
    }


@pytest.mark.usefixtures("often")
def test_a_container_above_its_limits_fails_its_items(folder):
    work = Work(count=2, limits=SandboxGroup(output_mb=1))
    container = Container(folder, work)
    following = Following(work, folder, container)
    (container.folder.outputs / "large").write_bytes(b"x" * 2_000_000)
    assert container.killed.wait(PATIENCE)
    following.finish("the container ended with exit status 137 before it finished the item")

    assert [row.status for row in work.rows] == [Status.SANDBOX_ERROR] * 2
    assert "sandbox.output_mb" in work.rows[0].error


def test_a_container_is_not_stopped_for_the_time_that_judging_takes(folder, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(watcher_module, "STORE_SECONDS", 0.0)
    monkeypatch.setattr(watcher_module.time, "monotonic", lambda: clock[0])
    work = Work(count=3, limits=SandboxGroup(timeout=10))
    container = Container(folder, work)

    def row(number: int) -> None:
        with container.folder.trajectories.open("a") as out:
            out.write(f'{{"item_id": "i-{number}", "status": "ok"}}\n')

    def record(outcomes: Sequence[Outcome], calls: Sequence[ModelCall]) -> None:
        clock[0] += 60
        if len(outcomes) == 1 and outcomes[0].trajectory.item_id == "i-0":
            row(1)

    monkeypatch.setattr(work, "record", record)
    watcher = Watcher(cast("Workload", work), threading.Event())
    watcher.watch(work.items, container.folder, container.kill).begin()
    row(0)
    for _ in range(2):
        watcher._look()
        assert not container.killed.is_set()
    watcher._look()
    assert container.killed.is_set()


def test_rows_are_recorded_though_the_engine_does_not_end_another_container(folder, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(watcher_module.time, "monotonic", lambda: clock[0])
    work = Work(count=1, limits=SandboxGroup(timeout=10))
    container = Container(folder, work)
    watcher = Watcher(cast("Workload", work), threading.Event())
    hanging = watcher.watch(work.items, ContainerFolder(folder.path / "other"), container.kill)
    hanging.begin()
    watcher.watch(work.items, container.folder, container.kill).begin()
    container.run()
    container.kills_unanswered = 1
    clock[0] = 11
    watcher._look()
    assert len(work.rows) == 1
    assert not container.killed.is_set()
    watcher._look()
    assert container.killed.is_set()


@pytest.mark.usefixtures("often")
def test_a_container_that_writes_too_much_is_stopped_while_others_are_judged(folder, monkeypatch):
    judged = threading.Event()
    work = Work(count=2, limits=SandboxGroup(output_mb=1))
    container = Container(folder, work)
    monkeypatch.setattr(work, "record", lambda outcomes, calls: judged.wait(PATIENCE))
    following = Following(work, folder, container)
    following.watcher.on_call(call())
    container.kills_unanswered = 1
    (container.folder.outputs / "large").write_bytes(b"x" * 2_000_000)
    try:
        assert container.killed.wait(PATIENCE / 2)
    finally:
        judged.set()
    following.finish("the container ended with exit status 137 before it finished the item")


@pytest.mark.usefixtures("often")
def test_calls_are_stored_without_rows_too(folder):
    work = Work(count=2)
    container = Container(folder, work)
    following = Following(work, folder, container)
    following.watcher.on_call(call())
    assert work.recorded.wait(PATIENCE)
    following.finish("it broke")

    assert work.asked > 0
    assert len(work.calls) == 1
    assert not container.killed.is_set()
    assert [row.error for row in work.rows] == ["it broke"] * 2


def test_calls_are_stored_with_the_rows_and_at_the_end(folder):
    work = Work(count=4)
    container = Container(folder, work)
    following = Following(work, folder, container)
    for _ in range(5):
        following.watcher.on_call(call())
    assert container.run()
    following.watcher.on_call(call())
    following.finish("")

    assert len(work.calls) == 6
    assert following.watcher.model_seconds == 1.0


@pytest.mark.parametrize(("released", "parts"), [(None, [1, 2, 1]), (4, [1, 1, 1, 1])])
def test_rows_for_which_nothing_waits_are_recorded_some_at_a_time(folder, monkeypatch, released, parts):
    clock, recorded = [0.0], []
    monkeypatch.setattr(watcher_module.time, "monotonic", lambda: clock[0])
    work = Work(count=4, released=released)
    monkeypatch.setattr(work, "record", lambda outcomes, calls: recorded.append(len(outcomes)))
    container = Container(folder, work)
    watcher = Watcher(cast("Workload", work), threading.Event())
    watch = watcher.watch(work.items, container.folder, container.kill)
    for number in range(4):
        with container.folder.trajectories.open("a") as out:
            out.write(f'{{"item_id": "i-{number}", "status": "ok"}}\n')
        if number == 3:
            watch.ended = ""
        watcher._look()
        clock[0] += watcher_module.STORE_SECONDS / 2
    assert recorded == parts
    assert watch.recorded.is_set()


def test_a_stopped_task_keeps_the_rows_that_were_not_recorded_yet(folder):
    work, stopped = Work(count=2), threading.Event()
    container = Container(folder, work)
    watcher = Watcher(cast("Workload", work), stopped)
    watcher.watch(work.items, container.folder, container.kill)
    for number in range(2):
        with container.folder.trajectories.open("a") as out:
            out.write(f'{{"item_id": "i-{number}", "status": "ok"}}\n')
        watcher._look()
    stopped.set()
    watcher.finish()
    assert [row.item_id for row in work.rows] == ["i-0", "i-1"]
