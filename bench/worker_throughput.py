"""Rollouts a second over Celery workers on hosts of their own, one, two and four of them."""

import os
import subprocess
import sys
import time
from contextlib import closing

import docker

from bench import tables
from bench.checkout import PLACE, Checkout, checkout, environment
from bench.cpu_seconds import metered
from bench.latency import Steady
from bench.world_model import World
from local import services
from local.engine import OwnEngine
from local.environment import model_connection, registry_address
from local.image import IMAGE
from local.served import served
from local.workers import name as worker_name
from skillopt_airflow.core.errors import PlatformError
from skillopt_airflow.core.types import Split
from skillopt_airflow.store.keys import RunKeys, scoring_name

NAME = "spread"
LATENCY = 1.0
COUNTS = (1, 2, 4)
CALLS = 16
"""In flight, of each worker."""
SECONDS = 120
"""That the calls of an evaluation take at the least."""
HEADER = (
    "workers",
    "items",
    "chunks",
    "begun within, s",
    "rollouts, s",
    "rollouts a second",
    "share of linear",
    "share of the calls' own",
    "cores in use",
)
NOTE = (
    f"`evaluate_<benchmark>` of one skill on a server that takes {LATENCY:g} s for every call, with {CALLS} calls in "
    "flight and one container for each worker; all workers are on the machine named above, each with mounts, processes "
    "and a Docker engine of its own, and share its cores with Airflow, the broker and the server. Each engine has the "
    "sandbox image by then; a new host pulls it once, which takes some 10 s here. Rollouts last from the start of the "
    "first chunk's task to the last row; all chunks have begun within the seconds named. The calls' own rate is calls "
    "in flight / latency. The cores in use are the CPU seconds of all processes of the platform and of the server over "
    "the whole DAG run, by its length."
)


def measure() -> None:
    """Evaluate with one number of workers after the other, each with items in proportion."""
    world = World()
    with served(Steady(world, LATENCY, slots=2 * CALLS * max(COUNTS))) as server:
        connections = {NAME: model_connection(server.base_url, "openai-chat:world")}
        layer = {
            "data": {"uri": "items", "split_mode": "split_dir"},
            "model": {"target_conn_id": NAME, "optimizer_conn_id": NAME, "concurrency": CALLS * max(COUNTS)},
            "sandbox": {"max_containers": max(COUNTS), "items_per_container": CALLS * SECONDS},
        }
        with checkout({NAME: layer}, **connections) as place:
            counts = {Split.TRAIN: 40, Split.VAL: 40, Split.TEST: CALLS * SECONDS * max(COUNTS)}
            world.write_items(PLACE / "benchmarks" / NAME / "items", counts)
            rows = list[tuple[object, ...]]()
            for count in COUNTS:
                _have_workers(count, connections)
                _pull(place, count)
                rows.append(_row(place, count, rows))
    tables.write("workers", "Rollouts over several workers", NOTE, HEADER, rows)


def _have_workers(count: int, connections: dict[str, str]) -> None:
    command = [sys.executable, "-m", "local", "up", "--executor", "celery", "--workers", str(count)]
    subprocess.run(command, cwd=PLACE, env=environment(PLACE, connections), check=True)


def _pull(place: Checkout, count: int) -> None:
    """Have every worker's engine keep the sandbox image, which it would pull once, before its first chunk."""
    home = place.home
    registry = registry_address(home.read())
    # All hosts know their folder by the same path, and each has sockets of its own.
    engine = OwnEngine(home.root / "host").url.removeprefix("unix://")
    for number in range(1, count + 1):
        host = services.running(home, worker_name(number))
        if host is None:
            raise PlatformError(f"{worker_name(number)} does not run")
        with closing(docker.DockerClient(base_url=f"unix:///proc/{host.pid}/root{engine}")) as client:
            client.images.pull(f"{registry}/{IMAGE}")


def _row(place: Checkout, workers: int, before: list[tuple[object, ...]]) -> tuple[object, ...]:
    items = CALLS * SECONDS * workers
    knobs = {
        "skill": "seed",
        "compare_to": None,
        "evaluation.test_limit": items,
        "model.concurrency": CALLS * workers,
        # Rollouts with other settings are others, so that none of a smaller evaluation is reused.
        "overrides": {"model.max_tokens": 1000 + workers},
    }
    with metered(place.home) as meter:
        # The server runs in this process, which the meter passes over.
        began, served_before = time.monotonic(), time.process_time()
        run_id = place.run(f"evaluate_{NAME}", knobs)
        wall, serving = time.monotonic() - began, time.process_time() - served_before
    chunks = [row for rows in place.timings(RunKeys("", NAME, scoring_name(run_id))).values() for row in rows]
    starts = [row.started for row in chunks]
    seconds = max(row.ended for row in chunks) - min(starts)
    rate = items / seconds
    first = float(str(before[0][5])) if before else rate
    shares = (rate / (first * workers), rate * LATENCY / (CALLS * workers))
    used = f"{(meter.seconds + serving) / wall:.1f} of {os.cpu_count()}"
    begun = f"{max(starts) - min(starts):.1f}"
    return (
        *(workers, items, len(chunks), begun, f"{seconds:.1f}", f"{rate:.1f}"),
        *(f"{share:.2f}" for share in shares),
        used,
    )
