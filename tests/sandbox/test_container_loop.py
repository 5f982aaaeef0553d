import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.config.resource_groups import SandboxGroup
from skillopt_airflow.core.errors import StoreError
from skillopt_airflow.core.values.types import Item, ModelCall, Status, Trajectory
from skillopt_airflow.sandbox import container_loop
from skillopt_airflow.sandbox.container_loop import Watch, Watcher
from skillopt_airflow.sandbox.staging import ContainerFolder
from skillopt_airflow.sandbox.task_workload import Outcome, SandboxSeconds, Workload, union_seconds

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

    def is_decided(self) -> bool:
        self.asked += 1
        return self.is_settled(self)


class Container:
    """Writes a row an item until it is killed."""

    def __init__(self, folder: Path, work: Work) -> None:
        self.folder = ContainerFolder(folder)
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

    def write(self, number: int) -> None:
        with self.folder.trajectories.open("a") as out:
            out.write(f'{{"item_id": "i-{number}", "status": "ok"}}\n')

    def run(self) -> bool:
        """Whether it came to its end by itself."""
        for number in range(self.work.count):
            if self.killed.wait(0.05):
                return False
            self.write(number)
        return True


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for path in (ContainerFolder(tmp_path).inputs, ContainerFolder(tmp_path).outputs):
        path.mkdir()
    return tmp_path


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not holds() and time.monotonic() < deadline:
        time.sleep(0.01)
    return holds()


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(container_loop, "POLL_SECONDS", 0.05)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, which only a test moves."""
    time = [0.0]
    monkeypatch.setattr(container_loop.time, "monotonic", lambda: time[0])
    return time


def following(work: Work, container: Container) -> tuple[Watcher, Callable[[str], None]]:
    """A watcher at work that follows one container, and a function that ends it."""
    watcher = Watcher(cast("Workload", work), threading.Event())
    running = ExitStack()
    running.enter_context(watcher.running())
    watch = watcher.watch(work.items, container.folder, container.kill)

    def finish(why: str) -> None:
        watcher.end(watch, why)
        running.close()
        watcher.finish()

    return watcher, finish


def call() -> ModelCall:
    numbers: dict[str, Any] = {"attempts": 1, "prompt_tokens": 1, "completion_tokens": 1, "started": 0, "seconds": 1}
    return ModelCall(role="target", stage="evaluate", model="m", http_status=200, **numbers)


def test_a_container_has_its_time_anew_whenever_an_item_ends(folder, clock):
    work = Work(count=3, limits=SandboxGroup(timeout=10))
    container = Container(folder, work)
    watch = Watch(work.items, container.folder, work.limits, container.kill)
    watch.begin()
    for number in range(2):
        clock[0] += 9
        container.write(number)
        assert len(watch.read()) == 1
        watch.check_rows()
        assert not container.killed.is_set()
    clock[0] += 11
    assert watch.read() == []
    watch.check_rows()
    assert container.killed.is_set()
    assert watch.unfinished() == []
    watch.ended = "gone"
    (unfinished,) = watch.unfinished()
    assert "10 s (sandbox.timeout)" in unfinished.trajectory.error


@pytest.mark.usefixtures("often")
def test_items_are_released_as_the_workload_says_after_each_look(folder):
    work = Work(count=6, released=2)
    container = Container(folder, work)
    told = container.folder.inputs / "released"
    _, finish = following(work, container)
    assert told.read_text() == "2"
    for work.released in (5, 3):
        assert eventually(lambda: told.read_text() == str(work.released))
    finish("")

    # Where nothing is held back the program is told nothing.
    told.unlink()
    for work.released, work.one_item_each in ((None, False), (2, True)):
        following(work, container)[1]("")
        assert not told.exists()


@pytest.mark.nightly
@pytest.mark.usefixtures("often")
def test_a_settled_workload_ends_its_container_and_leaves_the_rest_out(folder, caplog):
    caplog.set_level(logging.INFO)
    work = Work(count=200, is_settled=lambda work: len(work.rows) >= 7)
    container = Container(folder, work)
    # Then the engine is asked again.
    container.kills_unanswered = container.kills_in_vain = 2
    _, finish = following(work, container)
    assert not container.run()
    finish("the container ended with exit status 137 before it finished the item")

    assert container.killed.is_set()
    assert 7 <= len(work.rows) < 200
    assert {row.status for row in work.rows} == {Status.OK}
    assert f"{200 - len(work.rows)} of 200 items were left out" in caplog.text


@pytest.mark.usefixtures("often")
def test_rows_of_other_containers_can_settle_a_workload_too(folder):
    settled = threading.Event()
    work = Work(count=3, is_settled=lambda _: settled.is_set())
    container = Container(folder, work)
    watcher, finish = following(work, container)
    settled.set()
    assert container.killed.wait(PATIENCE)
    finish("the container ended")
    assert watcher.is_decided
    assert work.rows == []


@pytest.mark.usefixtures("often")
def test_what_asking_raises_ends_the_container_and_reaches_the_task(folder):
    def broken(work: Work) -> bool:
        if work.rows:
            raise StoreError("no bucket")
        return False

    work = Work(count=200, is_settled=broken)
    container = Container(folder, work)
    container.kills_in_vain = 1
    _, finish = following(work, container)
    assert not container.run()
    with pytest.raises(StoreError, match="no bucket"):
        finish("the container ended")
    assert {row.status for row in work.rows} == {Status.OK}


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
    watcher, finish = following(work, container)
    assert refused.wait(PATIENCE)
    watcher.on_call(call())
    with pytest.raises(StoreError, match="no answer"):
        finish("the container ended")
    assert handed[0] == handed[1]
    assert [one.trajectory.item_id for outcomes, _ in handed[1:] for one in outcomes] == ["i-0", "i-1"]
    assert sum(len(calls) for _, calls in handed[1:]) == 1


def test_what_a_stopped_task_can_no_longer_read_hides_no_reason_and_loses_no_call(folder):
    """Its containers are gone, and an engine far away cannot give what they left."""
    work = Work(count=1)
    container = Container(folder, work)
    watcher, finish = following(work, container)
    watcher.on_call(call())

    def gone() -> None:
        raise ConnectionError("the container is marked for removal")

    container.folder.fetch = gone
    watcher._stopped.set()
    finish("the task was stopped")
    assert isinstance(watcher.error, ConnectionError)
    assert len(work.calls) == 1


def test_a_container_is_not_stopped_for_the_time_that_judging_takes(folder, monkeypatch, clock):
    monkeypatch.setattr(container_loop, "STORE_SECONDS", 0.0)
    work = Work(count=3, limits=SandboxGroup(timeout=10))
    container = Container(folder, work)

    def record(outcomes: Sequence[Outcome], calls: Sequence[ModelCall]) -> None:
        clock[0] += 60
        if len(outcomes) == 1 and outcomes[0].trajectory.item_id == "i-0":
            container.write(1)

    monkeypatch.setattr(work, "record", record)
    watcher = Watcher(cast("Workload", work), threading.Event())
    watcher.watch(work.items, container.folder, container.kill).begin()
    container.write(0)
    for _ in range(2):
        watcher._poll()
        assert not container.killed.is_set()
    watcher._poll()
    assert container.killed.is_set()


def test_rows_are_recorded_though_the_engine_does_not_end_another_container(folder, clock):
    work = Work(count=1, limits=SandboxGroup(timeout=10))
    container = Container(folder, work)
    watcher = Watcher(cast("Workload", work), threading.Event())
    for place in (ContainerFolder(folder / "other"), container.folder):
        watcher.watch(work.items, place, container.kill).begin()
    container.run()
    container.kills_unanswered = 1
    clock[0] = 11
    watcher._poll()
    assert len(work.rows) == 1
    assert not container.killed.is_set()
    watcher._poll()
    assert container.killed.is_set()


@pytest.mark.usefixtures("often")
def test_a_container_that_writes_too_much_is_stopped_while_others_are_judged_and_fails_its_items(folder, monkeypatch):
    judged = threading.Event()
    work = Work(count=2, limits=SandboxGroup(output_mb=1))
    container = Container(folder, work)
    record = work.record
    monkeypatch.setattr(work, "record", lambda *given: record(*given) if judged.wait(PATIENCE) else None)
    watcher, finish = following(work, container)
    watcher.on_call(call())
    container.kills_unanswered = 1
    (container.folder.outputs / "large").write_bytes(b"x" * 2_000_000)
    try:
        assert container.killed.wait(PATIENCE / 2)
    finally:
        judged.set()
    finish("the container ended with exit status 137 before it finished the item")
    assert [row.status for row in work.rows] == [Status.SANDBOX_ERROR] * 2
    assert "sandbox.output_mb" in work.rows[0].error


@pytest.mark.usefixtures("often")
def test_calls_are_stored_without_rows_with_them_and_at_the_end(folder):
    work = Work(count=2)
    container = Container(folder, work)
    watcher, finish = following(work, container)
    watcher.on_call(call())
    assert work.recorded.wait(PATIENCE)
    container.write(0)
    watcher.on_call(call())
    finish("it broke")

    assert work.asked > 0
    assert len(work.calls) == 2
    assert watcher.model_seconds == 1.0
    assert not container.killed.is_set()
    assert [row.error for row in work.rows] == ["", "it broke"]


@pytest.mark.parametrize(("released", "parts"), [(None, [1, 2, 1]), (4, [1, 1, 1, 1])])
def test_rows_for_which_nothing_waits_are_recorded_some_at_a_time(folder, monkeypatch, clock, released, parts):
    recorded: list[int] = []
    work = Work(count=4, released=released)
    monkeypatch.setattr(work, "record", lambda outcomes, calls: recorded.append(len(outcomes)))
    container = Container(folder, work)
    watcher = Watcher(cast("Workload", work), threading.Event())
    watch = watcher.watch(work.items, container.folder, container.kill)
    for number in range(4):
        container.write(number)
        if number == 3:
            watch.ended = ""
        watcher._poll()
        clock[0] += container_loop.STORE_SECONDS / 2
    assert recorded == parts
    assert watch.recorded.is_set()


def test_a_stopped_task_keeps_the_rows_that_were_not_recorded_yet(folder):
    work, stopped = Work(count=2), threading.Event()
    container = Container(folder, work)
    watcher = Watcher(cast("Workload", work), stopped)
    watcher.watch(work.items, container.folder, container.kill)
    for number in range(2):
        container.write(number)
        watcher._poll()
    stopped.set()
    watcher.finish()
    assert [row.item_id for row in work.rows] == ["i-0", "i-1"]


INTERVALS = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 20)).map(lambda pair: (pair[0], sum(pair))))


@given(INTERVALS)
def test_the_union_counts_each_second_once(intervals):
    covered = {second for start, end in intervals for second in range(start, end)}
    assert union_seconds(intervals) == len(covered)


def test_wall_time_is_model_time_and_the_rest():
    assert SandboxSeconds(wall=5.0, model=3.0).container == 2.0
    assert SandboxSeconds(wall=5.0, model=5.5).container == 0.0
