"""Airflow's own cost of a step, at 4 epochs of 10 steps and at 10 epochs of 20."""

from collections.abc import Sequence
from statistics import mean, median

from bench import tables
from bench.checkout import PLACE, checkout, write_sample
from skillopt_airflow.core.run_history import History

SHAPES = {"bench_4x10": (4, 10), "bench_10x20": (10, 20)}
EPOCHS = {"bench_4x10": 4, "bench_10x20": 2}
"""Epochs that are run, each a DAG run of its own; all 200 steps would take three quarters of an hour."""
BATCH = 8
HEADER = ("graph", "steps run", "Airflow, median", "Airflow, mean", "first 10", "last 10", "whole step, median")
NOTE = (
    "Seconds a step in which no task's body ran: scheduling, starting processes, parsing the DAG file. Small batches "
    "(8 items, 2 containers a stage, 5 minibatches), so that the structure is the paper's and the work is little; "
    "offline stand-in as model. The mean includes the change from one epoch's DAG run to the next; of the 10 x 20 "
    "graph the first two epochs are run."
)


def measure() -> None:
    """Train both shapes on one platform, one after the other."""
    layers = {
        name: {
            "data": {"uri": str(PLACE / ".local" / "data" / name), "split_mode": "split_dir"},
            "train": {"num_epochs": epochs, "steps_per_epoch": steps, "batch_size": BATCH},
            "gradient": {"minibatch_size": 2},
            "sandbox": {"max_containers": 2},
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
    tables.write("overhead", "What a step costs Airflow", NOTE, HEADER, rows)


def _row(graph: str, history: History) -> Sequence[object]:
    airflow = [step.seconds.airflow for step in history.steps]
    walls = [step.seconds.wall for step in history.steps]
    figures = (median(airflow), mean(airflow), mean(airflow[:10]), mean(airflow[-10:]), median(walls))
    return (graph, len(airflow), *(f"{figure:.2f}" for figure in figures))
