"""A step's time: model, container, own work, and Airflow between the tasks."""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from operator import attrgetter
from threading import Event, Thread

from pydantic import Field

from skillopt_airflow.core.run.history import StepSeconds
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.sandbox.task_workload import union_seconds
from skillopt_airflow.store.keys import MomentKeys
from skillopt_airflow.store.objects import ObjectStore


class StageTiming(Document):
    """Times of a stage's task: its body (Unix seconds), and the seconds of model and container in it."""

    stage: str
    started: float
    ended: float
    model: float = Field(default=0.0, ge=0.0)
    container: float = Field(default=0.0, ge=0.0)


@contextmanager
def repeat_every(seconds: float, work: Callable[[], object]) -> Iterator[None]:
    """Call `work` at this interval in a thread until the block ends."""
    ended = Event()

    def follow() -> None:
        while not ended.wait(seconds):
            work()

    thread = Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def save(store: ObjectStore, keys: MomentKeys, timing: StageTiming, index: int = 0) -> None:
    store.put_model(keys.timing(timing.stage, index), timing)


def load(store: ObjectStore, keys: MomentKeys) -> list[StageTiming]:
    return [store.get_model(key, StageTiming) for key in store.list_keys(keys.timings)]


def step_seconds(timings: Sequence[StageTiming], previous_end: float | None) -> StepSeconds:
    """Split a step's wall time; for model and container, the busiest sequence of tasks that don't overlap counts.

    Without overlap, their sum can't exceed the wall time. The first step of a run, without a previous end, begins with
    its first task.
    """
    tasks = sorted(timings, key=attrgetter("ended", "started"))
    ends = [task.ended for task in tasks]
    # most[n]: the best choice among the first n tasks, sorted by end.
    most = [(0.0, 0.0)]
    for place, task in enumerate(tasks):
        model, container = most[bisect_right(ends, task.started, hi=place)]
        most.append(max(most[-1], (model + task.model, container + task.container), key=sum))
    model, container = most[-1]
    body = union_seconds((timing.started, timing.ended) for timing in timings)
    ended = ends[-1]
    # A repeated gate ends after later tasks; then only this step's tasks count.
    first = min(timing.started for timing in timings)
    wall = ended - (first if previous_end is None or previous_end >= ended else previous_end)
    own = max(0.0, body - model - container)
    return StepSeconds(wall=wall, model=model, container=container, own=own, airflow=max(0.0, wall - body))
