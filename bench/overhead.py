"""The cost of a step beyond its model calls, at 4 epochs of 10 steps and of 50, and of what a task's process parses."""

import subprocess
import sys
from collections.abc import Sequence
from statistics import mean, median

from bench import tables
from bench.checkout import PLACE, add_benchmark, checkout, environment, write_sample
from skillopt_airflow.benchmarks import LIST_VARIABLE
from skillopt_airflow.core.run_history import History

SHAPES = {"bench_4x10": (4, 10), "bench_4x50": (4, 50)}
EPOCHS = {"bench_4x10": 4, "bench_4x50": 2}
"""Epochs that are run, several DAG runs each; all 200 steps would take a quarter of an hour."""
BATCH = 8
HEADER = ("graph", "steps run", "own cost, median", "mean", "first 10", "last 10", "containers", "tasks", "Airflow")
NOTE = (
    "Seconds a step without a model call under way: containers (start, program, end), the tasks' own work, and Airflow "
    "(scheduling, starting processes, parsing the DAG file), of which the last three columns are the means. Small "
    "batches (8 items, 5 minibatches), so that the structure is the paper's and the work is little; offline stand-in "
    "as model. The means include the change from one DAG run to the next; of the 4 x 50 graph the first two epochs are "
    "run."
)
BENCHMARKS = (1, 11)
PARSED = """
import time
import airflow.sdk
begin = time.process_time()
from skillopt_airflow.pipeline.all_dags import dags
[dag_id] = dags()
print(time.process_time() - begin)
"""
TRIES = 5
TASKS_DAG = "_AIRFLOW_PARSING_CONTEXT_DAG_ID"
"""The variable in which Airflow tells a DAG file what it is read for."""


def measure() -> None:
    """Train both shapes on one platform, one after the other; then parse as a task's process does."""
    layers = {
        name: {
            "data": {"uri": str(PLACE / ".local" / "data" / name), "split_mode": "split_dir"},
            "train": {"num_epochs": epochs, "steps_per_epoch": steps, "batch_size": BATCH},
            "gradient": {"minibatch_size": 2},
            "evaluation": {"eval_test": False},
        }
        for name, (epochs, steps) in SHAPES.items()
    }
    rows = []
    with checkout(layers) as place:
        for name, (epochs, steps) in SHAPES.items():
            write_sample(PLACE / ".local" / "data" / name, {"train": BATCH * steps, "val": BATCH, "test": BATCH})
            asked = EPOCHS[name]
            history = place.train(name, {"train.num_epochs": asked}, asked * steps)
            rows.append(_row(f"{epochs} x {steps}", history))
        for number in range(max(BENCHMARKS) - 1):
            add_benchmark(PLACE, f"other_{number}", {})
        parsed = {count: _parsed(count) for count in BENCHMARKS}
    told = " and ".join(f"{seconds:.2f} s with {count}" for count, seconds in parsed.items())
    note = (
        f"{NOTE} Beyond importing Airflow, the process of a task takes {told} benchmarks for its DAG, in CPU seconds."
    )
    tables.write("overhead", "What a step costs", note, HEADER, rows)


def _row(graph: str, history: History) -> Sequence[object]:
    seconds = [step.seconds for step in history.steps]
    own = [step.container + step.own + step.airflow for step in seconds]
    parts = (mean(getattr(step, part) for step in seconds) for part in ("container", "own", "airflow"))
    figures = (median(own), mean(own), mean(own[:10]), mean(own[-10:]), *parts)
    return (graph, len(own), *(f"{figure:.2f}" for figure in figures))


def _parsed(count: int) -> float:
    """Return the CPU seconds for the DAG of a task where there are so many benchmarks; the least of some tries."""
    first = next(iter(SHAPES))
    listed = ",".join([first, *(f"other_{number}" for number in range(count - 1))])
    variables = environment(PLACE, {}) | {LIST_VARIABLE: listed, TASKS_DAG: f"train_{first}_epoch"}
    command = [sys.executable, "-c", PARSED]
    done = [
        subprocess.run(command, cwd=PLACE, env=variables, check=True, capture_output=True, text=True)
        for _ in range(TRIES)
    ]
    return min(float(one.stdout.split()[-1]) for one in done)
