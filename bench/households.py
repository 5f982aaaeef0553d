"""Forty games of ALFWorld in one container: seconds a game, and memory."""

import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from contextlib import closing
from pathlib import Path
from statistics import median

import docker

from bench import tables
from bench.container_memory import POLL_SECONDS, PeakMemory
from bench.real_data import ABSENT, REAL_DATA
from bench.repeated_looks import looking
from local import engine, image
from local.home import PROJECT
from local.try_benchmark import configured, opened_sandbox, s3_client, target_model
from local.try_display import TryDisplay
from skillopt_airflow import benchmarks
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.sessions import is_won
from skillopt_airflow.core.types import Split
from skillopt_airflow.sandbox.container_loop import run_workload
from skillopt_airflow.store.files import DataFiles
from skillopt_airflow.training.trial import Trial, Tried, first_items, skill_of

NAME = "alfworld"
GAMES = REAL_DATA / NAME / "games.tar.gz"
ITEMS = 40
NOTE = (
    f"The first {ITEMS} training games of ALFWorld's data, {{}} at a time, under the seed skill, in one container with "
    "the benchmark's own settings. The stand-in answers at once, so that the seconds are the engine's: each game "
    "has a process of its own, which imports the engine, opens the game and takes up to 50 actions. Memory is the "
    "container's, as its control group counts it."
)


def measure() -> None:
    """Play the games, and write the table."""
    if not GAMES.is_file():
        raise DataError(f"{GAMES} is missing: {ABSENT}")
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(GAMES) as games:
            games.extractall(folder, filter="data")
        subprocess.run([sys.executable, str(benchmarks.folder(NAME) / "make_splits.py"), folder], check=True)
        _measure(Path(folder))


def _measure(folder: Path) -> None:
    home = PROJECT / ".local"
    docker_host = engine.ensure(home, print)
    image.ensure(home, docker_host, print, [NAME])
    config = configured(NAME, [f"data.uri={folder}"])
    adapter = benchmarks.load(NAME)
    played: list[Tried] = []
    stopped = threading.Event()
    with target_model(config) as target, closing(docker.DockerClient(base_url=docker_host)) as client:
        trial = Trial(
            benchmark=NAME,
            adapter=adapter,
            config=config,
            skill=skill_of(NAME, None),
            items=first_items(NAME, adapter, config, Split.TRAIN, ITEMS, s3_client(config)),
            upstream=target.upstream,
            data=DataFiles.of(config.data, benchmarks.folder(NAME), s3_client(config)),
            labels={"store": str(home), "dag_run": "bench"},
            on_row=played.append,
        )
        peak = PeakMemory(client)
        began = time.monotonic()
        with looking(peak.look, POLL_SECONDS):
            run_workload(trial, lambda place: opened_sandbox(home, trial, place, stopped, TryDisplay()), stopped)
        wall = time.monotonic() - began
    _write(config.model.concurrency, played, wall, peak.megabytes)


def _write(at_once: int, played: list[Tried], wall: float, megabytes: float) -> None:
    seconds = [one.trajectory.seconds for one in played]
    rows = [
        ("games", len(played)),
        ("of them played to an end", sum(one.score is not None for one in played)),
        ("of them done", sum(is_won(one.trajectory.answer) for one in played)),
        ("actions", sum(one.trajectory.calls for one in played)),
        ("wall, seconds", f"{wall:.0f}"),
        ("wall / games", f"{wall / len(played):.1f}"),
        ("a game from its beginning to its end, median", f"{median(seconds):.1f}"),
        ("peak memory of the container, MB", f"{megabytes:.0f}"),
    ]
    tables.write("households", "Games of ALFWorld", NOTE.format(at_once), ("figure", ""), rows)
