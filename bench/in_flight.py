"""Calls in flight of two trainings that share a provider, on one host and on three, with a pool of calls or without."""

import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bench import tables
from bench.checkout import PLACE, Checkout, checkout, environment
from bench.world_model import World
from bench.world_server import SIGMA, SLOTS, WorldServer
from local.environment import model_connection
from local.served import served
from skillopt_airflow.core.errors import PlatformError
from skillopt_airflow.core.types import Split

LATENCY = 1.0
ALLOWED = SLOTS
"""Calls at the same time that the provider is said to allow."""
TOLERANCE = 1.1
"""So many times as many may be in flight at the most."""
POOL = "provider"
ROOM = 20 * SLOTS
"""Slots of the server, which holds nobody back."""
ITEMS = {Split.TRAIN: 80, Split.VAL: 72, Split.TEST: 72}
BATCH = 40
POOLED, FREE = ("left", "right"), ("free_left", "free_right")
HEADER = ("hosts", "a slot is", "most calls in flight", "mean while any is", "seconds", "calls")
NOTE = (
    f"Two trainings of two steps (batches of {BATCH}, {ITEMS[Split.VAL]} items to evaluate, {ITEMS[Split.TEST]} to "
    f"test) begin at the same moment, each with `model.concurrency` {ALLOWED}, on a server that answers in a lognormal "
    f"time of {LATENCY:g} s in the mean (sigma {SIGMA:g}) and has room for all that comes; target and optimizer are "
    f"behind it. Where a slot is a call, `sandbox.pool` and `model.optimizer_pool` are a pool of {ALLOWED} slots and "
    "`sandbox.max_containers` is 3. Three hosts are Celery workers with mounts and a Docker engine of their own each, "
    "on the machine named above. The mean is over the time in which any call is in flight."
)


@dataclass
class Load:
    """The load of a server."""

    most: int
    busy: float
    """Seconds of all calls together."""
    any: float
    """Seconds in which any call was under way."""
    calls: int


class CountingServer(WorldServer):
    """Counts the calls that are in flight, and for how long there are any."""

    def __init__(self, world: World) -> None:
        super().__init__(world, LATENCY, slots=ROOM)
        self.load = Load(0, 0.0, 0.0, 0)
        self._in_flight, self._since = 0, 0.0

    def _complete(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._lock:
            now = time.monotonic()
            self._since = now if self._in_flight == 0 else self._since
            self._in_flight += 1
            self.load.calls += 1
            self.load.most = max(self.load.most, self._in_flight)
        began = time.monotonic()
        try:
            return super()._complete(request)
        finally:
            with self._lock:
                now = time.monotonic()
                self._in_flight -= 1
                self.load.busy += now - began
                if self._in_flight == 0:
                    self.load.any += now - self._since


def measure() -> None:
    """Train on one host and on three."""
    world = World()
    with served(CountingServer(world)) as server:
        connections = {POOL: model_connection(server.base_url, "openai-chat:world")}
        with checkout({name: _layer(name) for name in (*POOLED, *FREE)}, **connections) as place:
            for name in (*POOLED, *FREE):
                world.write_items(PLACE / "benchmarks" / name / "items", ITEMS)
            _refused_without_its_pool(place)
            _airflow("pools", "set", POOL, str(ALLOWED), "calls in flight")
            rows = [_row(place, server, POOLED, 1)]
            up = [sys.executable, "-m", "local", "up", "--executor", "celery", "--workers", "3"]
            subprocess.run(up, cwd=PLACE, env=environment(PLACE, connections), check=True)
            rows += [_row(place, server, POOLED, 3), _row(place, server, FREE, 3)]
    tables.write("in_flight", "Calls in flight over trainings and hosts", NOTE, HEADER, rows)


def _layer(name: str) -> dict[str, Any]:
    layer: dict[str, Any] = {
        "data": {"uri": "items", "split_mode": "split_dir"},
        "train": {"num_epochs": 1, "steps_per_epoch": 2, "batch_size": BATCH},
        "model": {"target_conn_id": POOL, "optimizer_conn_id": POOL, "concurrency": ALLOWED},
    }
    if name in POOLED:
        layer["model"] |= {"optimizer_pool": POOL, "pool_slot": "call"}
        layer["sandbox"] = {"pool": POOL, "max_containers": 3}
    return layer


def _airflow(*arguments: str) -> None:
    subprocess.run([str(PLACE / ".local" / "bin" / "airflow"), *arguments], check=True)


def _refused_without_its_pool(place: Checkout) -> None:
    """See that a training does not begin before its pool is there.

    Raises:
        PlatformError: it began.
    """
    try:
        place.run(f"train_{POOLED[0]}", {})
    except PlatformError as refusal:
        if "Airflow has no such pool" not in str(refusal):
            raise
        print(refusal)
        return
    raise PlatformError("a training began without its pool")


def _row(place: Checkout, server: CountingServer, names: Sequence[str], hosts: int) -> tuple[object, ...]:
    # Rollouts with other settings are others, so that none of the trainings before is reused.
    knobs = {"overrides": {"model.max_tokens": 1000 + hosts}}
    for name in names:
        place.wait_for(name)
    server.load = Load(0, 0.0, 0.0, 0)
    began = time.monotonic()
    runs = {name: place.api.trigger(f"train_{name}", knobs) for name in names}
    for name, run_id in runs.items():
        state = place.api.wait(f"train_{name}", run_id)
        if state != "success":
            raise PlatformError(f"train_{name}: run {run_id} ended as {state}")
    load, wall = server.load, time.monotonic() - began
    if names == POOLED and load.most > TOLERANCE * ALLOWED:
        raise PlatformError(f"{load.most} calls were in flight, and the pool has {ALLOWED} slots")
    return (
        hosts,
        "a call" if names == POOLED else "a task",
        f"{load.most} of {ALLOWED}",
        f"{load.busy / load.any:.1f}",
        f"{wall:.0f}",
        load.calls,
    )
