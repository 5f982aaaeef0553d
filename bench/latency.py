"""Evaluations in Airflow with default settings, compared with the lower bound from the model server's latency."""

import time
from collections.abc import Mapping
from typing import Any

from bench import tables
from bench.checkout import PLACE, Checkout, checkout
from bench.world_model import write_items
from bench.world_server import WorldServer
from local.environment import model_connection
from local.served import served
from local.standin.economy import World
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.values.types import Split
from skillopt_airflow.store.keys import RunKeys, scoring_name

NAME = "latency"
LATENCY = 1.0
CALLS = TrainConfig().model.concurrency
COUNTS = (40, 200, 1400)
HEADER = ("items", "chunks", "bound", "rollouts", "rollouts / bound", "1.10 x bound + 5 s", "whole DAG run")
NOTE = (
    f"`evaluate_<benchmark>` of one skill with default settings, on a server that takes {LATENCY:g} s for every call; "
    f"seconds. The bound is latency x items / `model.concurrency` ({CALLS}). Rollouts last from the start of the first "
    "chunk's task to the last row; the whole DAG run is from the trigger to its end."
)


class Steady(WorldServer):
    """Takes the same time for every call, with enough slots."""

    def latency(self, name: str) -> float:
        return LATENCY


def measure() -> None:
    """Run the evaluations in sequence on one platform."""
    with served(Steady(World(), LATENCY, slots=2 * CALLS)) as server:
        data = PLACE / ".local" / "data" / NAME
        layer = {
            "data": {"uri": str(data), "split_mode": "split_dir"},
            "model": {"target_conn_id": NAME, "optimizer_conn_id": NAME},
        }
        connections = {NAME: model_connection(server.base_url, "openai-chat:world")}
        with checkout({NAME: layer}, **connections) as place:
            write_items(data, {Split.TRAIN: 40, Split.VAL: 40, Split.TEST: max(COUNTS)})
            rows = [_row(place, count) for count in COUNTS]
    tables.write("latency", "Evaluations on a slow server", NOTE, HEADER, rows)


def _row(place: Checkout, count: int) -> tuple[object, ...]:
    # A different setting prevents reuse of rollouts from smaller evaluations.
    overrides = {"evaluation.test_limit": count, "model.max_tokens": 1000 + count}
    knobs: Mapping[str, Any] = {"skills": ["seed"], "overrides": overrides}
    began = time.monotonic()
    run_id = place.run(f"evaluate_{NAME}", knobs)
    wall = time.monotonic() - began
    chunks = [row for rows in place.timings(RunKeys("", NAME, scoring_name(run_id))).values() for row in rows]
    rollouts = max(row.ended for row in chunks) - min(row.started for row in chunks)
    bound = LATENCY * count / CALLS
    figures = (bound, rollouts, rollouts / bound, 1.10 * bound + 5, wall)
    return (count, len(chunks), *(f"{figure:.{2 if index == 2 else 1}f}" for index, figure in enumerate(figures)))
