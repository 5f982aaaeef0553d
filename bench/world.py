"""Trainings with the real DAGs in a world of known rules, on a slow model server with 24 slots."""

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import mean
from typing import Any

from bench import tables
from bench.checkout import PLACE, Checkout, checkout
from bench.cpu_seconds import metered
from bench.world_model import FEW_EDITS, MANY_EDITS, BenchEconomy, write_items
from bench.world_server import SIGMA, SLOTS, WorldServer
from local.environment import model_connection
from local.served import served
from local.standin.economy import World
from skillopt_airflow.core.run.history import History, StepSeconds
from skillopt_airflow.core.values.types import Split
from skillopt_airflow.sandbox.task_workload import union_seconds
from skillopt_airflow.store.keys import RunKeys
from skillopt_airflow.training.run.timing import StageTiming

BATCH = 40


@dataclass(frozen=True)
class Form:
    """A training in the world, and the mean latency of its model server."""

    name: str
    """Name of the table and the benchmark."""
    latency: float
    epochs: int
    steps: int
    """Steps per epoch."""
    items: Mapping[Split, int]
    economy: BenchEconomy = MANY_EDITS

    @property
    def world(self) -> World:
        return World(economy=self.economy)

    @property
    def title(self) -> str:
        sizes = "/".join(str(count) for count in self.items.values())
        steps = f"{self.epochs} x {self.steps} steps"
        return f"{self.latency:g} s a call, {sizes} items, {steps}, {self.economy.name}"

    @property
    def layer(self) -> dict[str, Any]:
        """Contents of benchmark.yaml."""
        return {
            "data": {"uri": str(PLACE / ".local" / "data" / self.name), "split_mode": "split_dir"},
            "train": {"num_epochs": self.epochs, "steps_per_epoch": self.steps, "batch_size": BATCH},
            "model": {"target_conn_id": self.name, "optimizer_conn_id": self.name, "concurrency": SLOTS},
        }


PAPER = {Split.TRAIN: 400, Split.VAL: 200, Split.TEST: 1400}
FORMS = (
    Form("world", 1.0, 4, 10, PAPER),
    Form("world_few_edits", 1.0, 4, 10, PAPER, FEW_EDITS),
    Form("world_5s", 5.0, 4, 10, PAPER),
    # Takes a few minutes, to compare changes.
    Form("world_small", 1.0, 2, 3, {Split.TRAIN: 3 * BATCH, Split.VAL: 100, Split.TEST: 140}),
)
REFERENCE_WALL, REFERENCE_CALLS, REFERENCE_CPU = 1019, 13300, 0.004
"""Wall seconds, calls, and CPU seconds per rollout of the reference implementation with PAPER at 1 s per call."""
NOTE = (
    f"A training with default settings, but for what a column's head says, batches of {BATCH} and `model.concurrency` "
    f"{SLOTS}, against a server of {SLOTS} slots whose latency is lognormal (sigma {SIGMA:g}) and drawn by the "
    "request; the optimizer's calls take slots as well. Target and optimizer are no language model: an item is right "
    "exactly if the skill has the sentence that it needs, and some items are a matter of chance. Seconds, if nothing "
    "else is said. The wall is from the trigger to the run's end, tests and publication included; the calls' latency / "
    "slots is the least that any trainer would take for them. CPU seconds are those of all processes of the platform: "
    "Airflow, database, S3 server, engine, containers. A stage's seconds are those in which the body of one of its "
    "tasks ran."
)
REFERENCE_NOTE = (
    "The reference is the reference implementation, measured on the same protocol at 1 s a call with 400/200/1400 "
    "items and 4 x 10 steps. Its wall at 5 s a call is computed: its CPU seconds stay, the rest is five times as "
    "long."
)


def measure(form: Form) -> None:
    """Train once on a separate platform."""
    with served(WorldServer(form.world, form.latency)) as server:
        connection = model_connection(server.base_url, "openai-chat:world")
        with checkout({form.name: form.layer}, **{form.name: connection}) as place:
            figures = _trained(place, form, server)
    compared = form.items == PAPER
    columns = {"reference": reference(form)} if compared else {}
    note = " ".join([NOTE, form.economy.description, *([REFERENCE_NOTE] if compared else [])])
    _write(form.name, note, columns | {form.title: figures})


def reference(form: Form) -> dict[str, str]:
    """Return the figures of the reference implementation for a form with PAPER's items."""
    own = REFERENCE_CALLS * REFERENCE_CPU
    wall = (REFERENCE_WALL - own) * form.latency + own
    return {
        "wall": f"{wall:.0f}",
        "wall / steps": f"{wall / (form.epochs * form.steps):.1f}",
        "calls": str(REFERENCE_CALLS),
        "CPU seconds a rollout": str(REFERENCE_CPU),
    }


def _trained(place: Checkout, form: Form, server: WorldServer) -> dict[str, str]:
    write_items(PLACE / ".local" / "data" / form.name, form.items)
    place.wait_for(form.name)
    with metered(place.home) as meter:
        began = time.monotonic()
        history = place.train(form.name, {}, form.epochs * form.steps)
        wall = time.monotonic() - began
    return (
        {
            "wall": f"{wall:.0f}",
            "wall / steps": f"{wall / len(history.steps):.1f}",
            "calls' latency / slots": f"{server.busy_seconds / SLOTS:.0f}",
            "CPU seconds": f"{meter.seconds:.0f}",
            "CPU seconds a rollout": f"{meter.seconds / history.rollouts.ran:.3f}",
        }
        | _counts(history)
        | _scores(history)
        | _seconds(history, place.timings(RunKeys("", history.benchmark, history.run)))
    )


def _counts(history: History) -> dict[str, str]:
    by_stage = Counter[str]()
    for cost in history.costs:
        by_stage[f"{cost.role} calls, {cost.stage}"] += cost.calls
    tokens = sum(cost.prompt_tokens + cost.completion_tokens for cost in history.costs)
    calls = sum(by_stage.values())
    counts = {"rollouts": history.rollouts.ran, "calls": calls, "tokens": tokens} | by_stage
    return {name: str(count) for name, count in counts.items()}


def _scores(history: History) -> dict[str, str]:
    accepted = sum(step.action.accepted for step in history.steps)
    return {
        **{f"exact match on test, {name}": f"{score.hard:.3f}" for name, score in history.test.items()},
        "exact match on val, seed": f"{history.seed.score:.3f}",
        "exact match on val, best": f"{history.best.score:.3f}",
        "steps accepted": str(accepted),
        "steps rejected": str(len(history.steps) - accepted),
    }


def _seconds(history: History, timings: Mapping[str, Sequence[StageTiming]]) -> dict[str, str]:
    """Return seconds per step by part and stage, and the total seconds of stages outside steps."""
    steps = {step.name: step.seconds for step in history.steps}
    inside, outside = defaultdict[str, float](float), defaultdict[str, float](float)
    for moment, rows in timings.items():
        spans = defaultdict[str, list[tuple[float, float]]](list)
        for row in rows:
            spans[row.stage].append((row.started, row.ended))
        for stage, ran in spans.items():
            (inside if moment in steps else outside)[stage] += union_seconds(ran)
    parts = {part: mean(getattr(step, part) for step in steps.values()) for part in StepSeconds.model_fields}
    return {
        **{f"a step, {part}": f"{seconds:.1f}" for part, seconds in parts.items()},
        **{f"a step, stage {stage}": f"{seconds / len(steps):.1f}" for stage, seconds in inside.items()},
        **{f"the run outside its steps, stage {stage}": f"{seconds:.1f}" for stage, seconds in outside.items()},
    }


def _write(name: str, note: str, columns: Mapping[str, Mapping[str, str]]) -> None:
    figures = dict.fromkeys(figure for column in columns.values() for figure in column)
    rows = [(figure, *(column.get(figure, "") for column in columns.values())) for figure in figures]
    tables.write(name, "A world of known rules on a slow server", note, ("figure", *columns), rows)
