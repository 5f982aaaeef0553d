"""The limits of Airflow and of a worker, and how much of them many items and many benchmarks need."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from bench import scale_items, tables
from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.types import Split
from skillopt_airflow.pipeline.epochs import MOST_TASKS, TASKS_OF_STEP
from skillopt_airflow.training.map_limits import step_demands
from skillopt_airflow.training.rollout_plan import largest_plan

GOAL, BENCHMARKS = 100_000, 200
TRAIN = 400
"""Items on the training split, 10 steps an epoch."""
MOST_MAPPED = 1024
"""Tasks that Airflow makes of a list ([core] max_map_length)."""
READ_SECONDS = 30
"""That Airflow lets a DAG file take ([core] dagbag_import_timeout)."""
WORKER_MEBIBYTES = 4096
"""Memory of a worker, for the limit; nothing in the project knows it."""


class Line(NamedTuple):
    """A figure as a straight line over the items."""

    fixed: float
    each: float

    def __call__(self, items: int) -> float:
        """Return the figure for so many items."""
        return self.fixed + self.each * items

    def reaches(self, limit: float) -> float:
        """Return with how many items it is at the limit."""
        return (limit - self.fixed) / self.each


class Limit(NamedTuple):
    """A limit, and how much of it the project needs at its goal."""

    name: str
    limit: float
    needed: float
    met: str

    @property
    def share(self) -> float:
        """Return the part of the limit that is needed."""
        return self.needed / self.limit


def line_through(places: tuple[int, int], figures: Sequence[float]) -> Line:
    """Return the straight line through two points."""
    (left, right), (low, high) = places, figures
    each = (high - low) / (right - left)
    return Line(low - each * left, each)


def over_items(trainings: Sequence[scale_items.Training], figure: Callable[[scale_items.Training], float]) -> Line:
    """Return the line of a figure through the trainings."""
    return line_through(scale_items.MEASURED, [figure(training) for training in trainings])


def limits_of(trainings: Sequence[scale_items.Training], reading: Line) -> list[Limit]:
    """Return the limits, the one of which most is needed first; `reading` is over the number of benchmarks."""
    config = TrainConfig()
    chunks = largest_plan(GOAL, config, 1, 1)
    most_items = config.sandbox.items_per_container * MOST_MAPPED
    peaks = {stage: over_items(trainings, partial(_peak, stage)) for stage in scale_items.STAGES}
    stage, memory = max(peaks.items(), key=lambda found: found[1](GOAL))
    of_step = sum(one.chunks for one in step_demands(config, {Split.TRAIN: TRAIN, Split.VAL: GOAL})) + TASKS_OF_STEP
    alone = (MOST_TASKS - of_step) * config.sandbox.items_per_container + GOAL
    found = [
        Limit(
            f"the memory of `{stage}`, on workers with {WORKER_MEBIBYTES // 1024} GiB",
            WORKER_MEBIBYTES,
            memory(GOAL),
            f"with {memory.reaches(WORKER_MEBIBYTES):,.0f} items, one such task at a time",
        ),
        Limit(
            f"tasks that Airflow makes of a list, {MOST_MAPPED:,}",
            MOST_MAPPED,
            chunks,
            f"with {most_items:,} items and one draw; raise `sandbox.items_per_container` or Airflow's limit",
        ),
        Limit(
            f"a step's tasks in a DAG run, {MOST_TASKS}",
            MOST_TASKS,
            of_step,
            f"with {alone:,} items and one draw; above it a DAG run of one step has more",
        ),
        Limit(
            f"seconds that Airflow lets a DAG file take, {READ_SECONDS}",
            READ_SECONDS,
            reading(BENCHMARKS),
            f"with {reading.reaches(READ_SECONDS):,.0f} benchmarks in one DAG file, on a core of their own",
        ),
    ]
    return sorted(found, key=lambda limit: limit.share, reverse=True)


def section(limits: Sequence[Limit]) -> tables.Section:
    """Return the table."""
    rows = [(one.name, f"{one.needed:,.0f}", f"{one.share:.0%}", one.met) for one in limits]
    note = f"How much of each limit {GOAL:,} items, or {BENCHMARKS} benchmarks, need with the default settings."
    return tables.Section("Limits", note, ("limit", "needed", "share", "met"), rows)


def _peak(stage: str, training: scale_items.Training) -> float:
    return training.stages[stage].peak
