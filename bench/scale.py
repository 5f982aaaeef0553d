"""Tasks, rows, requests and bytes of 100,000 items, 1,000 nights and 200 benchmarks, and which limit is met first."""

import logging
import shutil
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from statistics import mean

from bench import large_run, many_benchmarks, scale_airflow, scale_items, scale_limits, scale_nights, tables
from bench.checkout import PLACE, add_benchmark, copy_tracked
from bench.counted_store import CountedPlace, Used
from bench.large import MEBIBYTE
from bench.scale_limits import BENCHMARKS, GOAL, TRAIN, Line, line_through, over_items
from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.types import Split
from skillopt_airflow.pipeline.epochs import (
    MOST_STEPS,
    MOST_TASKS,
    STEPS_OF_END,
    TASKS_OF_STEP,
    seconds_between_looks,
    steps_that_fit,
)
from skillopt_airflow.training.map_limits import step_demands
from skillopt_airflow.training.rollout_plan import largest_plan

NIGHTS = 1000
EPOCHS = 4
ITEMS_OF_NIGHT = 50
MEASURED_NIGHTS = (2, 10, 100, NIGHTS)
MEASURED_BENCHMARKS = (10, BENCHMARKS)
TASKS_OF_NIGHT = 10
"""Task instances of a night's DAG run: a chunk each for champion, the one before it and the seed, and seven others."""
HOUR = 3600.0


def measure() -> None:
    """Write `results/scale.md`.

    Raises:
        PlatformError: a server or the platform does not start, or a training failed.
    """
    logging.disable(logging.WARNING)
    trainings = [scale_items.carry_out(items) for items in scale_items.MEASURED]
    nights = _nights()
    reading = _reading()
    left = scale_airflow.train()
    limits = scale_limits.limits_of(trainings, reading)
    first = f"The first of the limits below that is met is {limits[0].name}: {limits[0].met}."
    tables.write_sections(
        "scale",
        "100,000 items, 1,000 nights, 200 benchmarks",
        f"{first} Seconds are CPU seconds, since other work ran on the machine.",
        [_items(trainings), _tasks(), _rows(left), _waiting(left), _of_nights(nights), scale_limits.section(limits)],
    )


def _nights() -> Mapping[int, Mapping[str, Used]]:
    with large_run.own_place(200) as own:
        place = CountedPlace.of(own)
        large_run.prepare(place)
        calendar = scale_nights.Calendar(place, ITEMS_OF_NIGHT)
        calendar.carry_out()
        found = {}
        for night in MEASURED_NIGHTS:
            calendar.pass_until(night - 1)
            found[night] = calendar.carry_out()
        return found


def _reading() -> Line:
    """Return the CPU seconds to read the DAG file, over the number of benchmarks."""
    found = []
    for count in MEASURED_BENCHMARKS:
        shutil.rmtree(PLACE, ignore_errors=True)
        copy_tracked(PLACE)
        for number in range(count):
            add_benchmark(PLACE, f"many_{number:03d}", many_benchmarks.LAYER)
        found.append(many_benchmarks.read_in_a_process()[1])
    shutil.rmtree(PLACE)
    return line_through(MEASURED_BENCHMARKS, found)


def _items(trainings: Sequence[scale_items.Training]) -> tables.Section:
    small, large = trainings

    def row(name: str, found: Callable[[scale_items.Training], Used], peak: str) -> Sequence[object]:
        requests, read, written, seconds = (
            over_items(trainings, lambda training, one=one: one(found(training)))  # type: ignore[misc]
            for one in (
                lambda used: used.requests,
                lambda used: used.bytes_read / MEBIBYTE,
                lambda used: used.bytes_written / MEBIBYTE,
                lambda used: used.cpu_seconds,
            )
        )
        measured = (f"{found(training).requests:,}" for training in (small, large))
        at_goal = (f"{line(GOAL):,.0f}" for line in (requests, read, written, seconds))
        return (name, *measured, *at_goal, peak)

    rows = [
        row(stage, lambda training, stage=stage: training.stages[stage].used, _peak(trainings, stage))  # type: ignore[misc]
        for stage in scale_items.STAGES
    ]
    rows.append(row("all of it", lambda training: sum((one.used for one in training.stages.values()), Used()), ""))
    objects, stored = (
        over_items(trainings, figure)(GOAL) for figure in (lambda one: one.objects, lambda one: one.stored)
    )
    rollouts = 2 * GOAL
    note = (
        f"A training of one step with as many items on the selection split, as in [large](large.md): {rollouts:,} "
        "rollouts for 100,000 items, in chunks of 400 items, 40 rollouts stored at a time. Requests and bytes are "
        "counted at two sizes, where botocore sends them; the figures of 100,000 items are on the straight line "
        f"through these, since every chunk does the same. They leave {rollouts:,} rows of rollouts, as many of model "
        f"calls, {objects:,.0f} objects and {stored / MEBIBYTE:,.0f} MiB."
    )
    first, second = scale_items.MEASURED
    at = f"at {GOAL:,}"
    header = (
        "stage",
        f"requests at {first:,}",
        f"at {second:,}",
        at,
        f"MiB read {at}",
        f"MiB written {at}",
        f"seconds {at}",
    )
    return tables.Section("100,000 items in S3", note, (*header, f"most MiB of memory {at}"), rows)


def _peak(trainings: Sequence[scale_items.Training], stage: str) -> str:
    line = over_items(trainings, lambda training: training.stages[stage].peak)
    return f"{line(GOAL):,.0f}" if line.each else ""


def _tasks() -> tables.Section:
    rows = []
    for items, draws in ((200, 1), (1000, 3), (GOAL, 1), (GOAL, 3)):
        config = TrainConfig.from_layers({"evaluation": {"draws": draws}})
        sizes = {Split.TRAIN: TRAIN, Split.VAL: items, Split.TEST: items}
        chunks = sum(demand.chunks for demand in step_demands(config, sizes))
        steps = min(MOST_STEPS, steps_that_fit(config, sizes))
        of_step = chunks + TASKS_OF_STEP
        evaluation = largest_plan(items, config, 1, draws)
        rows.append((f"{items:,}", draws, evaluation, of_step, MOST_STEPS * of_step, steps, steps * of_step))
    header = (
        "items",
        "draws",
        "chunks of an evaluation",
        "tasks of a step, at most",
        "tasks of ten steps",
        "steps in a DAG run",
        "tasks of a DAG run",
    )
    note = (
        f"With the default settings and {TRAIN} training items. A DAG run of an epoch has as many of its steps as "
        f"come to {MOST_TASKS} tasks, and one at least; an epoch's end takes the room of {STEPS_OF_END}. The "
        "training's own DAG run has the chunks of seed, last skill, test and publication."
    )
    return tables.Section("Tasks of a training in Airflow", note, header, rows)


def _rows(left: scale_airflow.Left) -> tables.Section:
    each, size = left.rows / left.tasks, left.bytes / left.tasks
    config = TrainConfig()
    of_step = sum(one.chunks for one in step_demands(config, {Split.TRAIN: TRAIN, Split.VAL: GOAL})) + TASKS_OF_STEP
    training = EPOCHS * MOST_STEPS * of_step
    counts = (
        ("measured: a training of two epochs of ten steps", left.tasks),
        (f"a training of {EPOCHS} epochs of {MOST_STEPS} steps on {GOAL:,} items", training),
        (f"{NIGHTS:,} nights of a benchmark", NIGHTS * TASKS_OF_NIGHT),
        (f"a night of {BENCHMARKS} benchmarks", BENCHMARKS * TASKS_OF_NIGHT),
        (f"{NIGHTS:,} nights of {BENCHMARKS} benchmarks", NIGHTS * BENCHMARKS * TASKS_OF_NIGHT),
    )
    rows = [(name, f"{n:,}", f"{n * each:,.0f}", f"{n * size / MEBIBYTE:,.0f}") for name, n in counts]
    note = (
        f"Rows and bytes of Airflow's database, indexes included, are {each:.1f} rows and {size / 1024:.1f} KB a task "
        "instance in the measured training; the others are that times their tasks. Airflow keeps them until "
        "`airflow db clean` removes them; the project needs none of them once a run has ended."
    )
    return tables.Section("Rows in Airflow's database", note, ("what", "task instances", "rows", "MiB"), rows)


def _waiting(left: scale_airflow.Left) -> tables.Section:
    rows = []
    for name, step in (("10 s", 10.0), ("1 minute", 60.0), ("10 minutes", 600.0), ("1 hour", HOUR)):
        pauses = [seconds_between_looks(step, 1, MOST_STEPS)]
        pauses += [seconds_between_looks(step * done, done, MOST_STEPS) for done in (11, 21, 31)]
        part = MOST_STEPS * step
        looks = sum(part / pause for pause in pauses)
        rows.append(
            (name, f"{EPOCHS * part / HOUR:.1f}", f"{EPOCHS * part:,.0f}", f"{looks:,.0f}", f"{mean(pauses) / 2:.1f}")
        )
    note = (
        "The task that waits for an epoch's DAG run is deferred and asks whether it has ended. In the measured "
        f"training it ended {mean(left.gaps):.1f} s in the mean after the DAG run, Airflow's scheduling included."
    )
    header = (
        "a step takes",
        "hours of 4 epochs",
        "questions, one a second",
        "questions now",
        "later, mean seconds an epoch",
    )
    return tables.Section("Questions of a waiting training", note, header, rows)


def _of_nights(nights: Mapping[int, Mapping[str, Used]]) -> tables.Section:
    totals = {night: sum(tasks.values(), Used()) for night, tasks in nights.items()}
    rows: list[Sequence[object]] = [
        (
            f"{night:,}",
            *(f"{one:,}" for one in (used.gets, used.puts, used.lists, used.deletes)),
            f"{used.bytes_read / MEBIBYTE:.1f}",
            f"{used.bytes_written / MEBIBYTE:.1f}",
            f"{used.cpu_seconds:.1f}",
        )
        for night, used in totals.items()
    ]

    def together(figure: Callable[[Used], float]) -> float:
        """Return the area below the straight lines between what was measured."""
        return sum(
            (late - early) * (figure(totals[early]) + figure(totals[late])) / 2 for early, late in pairwise(totals)
        )

    figures: Sequence[tuple[Callable[[Used], float], float]] = (
        (lambda used: used.gets, 1),
        (lambda used: used.puts, 1),
        (lambda used: used.lists, 1),
        (lambda used: used.deletes, 1),
        (lambda used: used.bytes_read, MEBIBYTE),
        (lambda used: used.bytes_written, MEBIBYTE),
        (lambda used: used.cpu_seconds, 1),
    )
    rows.append((f"all {NIGHTS:,}", *(f"{together(figure) / unit:,.0f}" for figure, unit in figures)))
    note = (
        f"A night of {ITEMS_OF_NIGHT} items and three skills as its tasks carry it out, behind so many nights before: "
        "the project's own functions, with rollouts that are made up. The nights between are copies of the first one "
        "that the project's own tables store. What grows is the ledger of all nights, which a night reads a few times "
        "and writes once; the last row is the sum by straight lines between the measured nights."
    )
    header = ("night", "GET", "PUT", "LIST", "DELETE", "MiB read", "MiB written", "seconds")
    return tables.Section("1,000 nights", note, header, rows)
