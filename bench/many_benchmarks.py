"""The costs of an Airflow with 200 benchmarks: reading its DAG files, its lists, a start of a task, a new benchmark."""

import subprocess
import sys
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import httpx

from bench import tables
from bench.checkout import PLACE, Checkout, add_benchmark, checkout, environment
from bench.cpu_seconds import metered
from local.airflow_services import PROCESSOR, SCHEDULER
from local.environment import airflow_url
from local.home import ADMIN
from skillopt_airflow.core.errors import PlatformError

COUNTS = (10, 200)
SAMPLE = PLACE / "benchmarks" / "searchqa" / "sample"
LAYER: Mapping[str, Any] = {
    "train": {"num_epochs": 1, "steps_per_epoch": 1},
    "data": {"uri": str(SAMPLE), "split_mode": "split_dir", "limit": 8},
}
IDLE_SECONDS = 120
SECONDS = 1200
READ = """
import time
from skillopt_airflow.pipeline import all_dags
all_dags.check_benchmarks()
began = time.process_time()
made = all_dags.dags()
print(len(made), time.process_time() - began)
"""
HEADER = ("benchmarks", *(f"{count}" for count in COUNTS))
NOTE = (
    "Folders like SearchQA's, each with its DAGs, beside the project's own benchmarks; seconds, if nothing else is "
    f"said. Airflow reads the DAG files again every 30 s. The cores in use are of {IDLE_SECONDS} s in which no run is "
    "under way. A list is what the UI asks for when it opens the page of all DAGs, the slowest of five times. A task's "
    "start is the time from the trigger of an evaluation to the start of its first task's process, the slowest of five."
)


def measure() -> None:
    """Have one number of benchmarks after the other, each on a platform of its own."""
    columns = [_measured(count) for count in COUNTS]
    rows = [(name, *(column[name] for column in columns)) for name in columns[0]]
    tables.write("benchmarks", "Many benchmarks in one Airflow", NOTE, HEADER, rows)


def _measured(count: int) -> dict[str, str]:
    layers = {f"many_{number:03d}": LAYER for number in range(count)}
    began = time.monotonic()
    with checkout(layers) as place:
        place.wait_for(f"many_{count - 1:03d}")
        ready = time.monotonic() - began
        dags, seconds = read_in_a_process()
        figures = {
            "DAGs": str(dags),
            "reading the DAG file, CPU s": f"{seconds:.1f}",
            "from nothing to the last DAG in the list": f"{ready:.0f}",
        }
        figures |= _idle(place)
        figures["a list of 50 DAGs"] = f"{_list_seconds(place):.2f}"
        figures["a task's start"] = f"{_start_seconds(place):.1f}"
        figures["until a new benchmark's DAGs are there"] = f"{_appears(place):.0f}"
        figures["until a broken one is named"] = f"{_is_named(place):.0f}"
        place.api.wait_for_dag("train_many_000")
        return figures


def read_in_a_process() -> tuple[int, float]:
    """Return how many DAGs the copy has, and the CPU seconds to make them all, behind the imports."""
    variables = environment(PLACE, {}) | {"AIRFLOW_HOME": str(PLACE / ".local" / "airflow")}
    done = subprocess.run(
        [sys.executable, "-c", READ], cwd=PLACE, env=variables, check=True, capture_output=True, text=True
    )
    dags, seconds = done.stdout.split()[-2:]
    return int(dags), float(seconds)


def _idle(place: Checkout) -> dict[str, str]:
    """Return the cores that Airflow takes while nothing runs."""
    with metered(place.home) as meter:
        time.sleep(IDLE_SECONDS)
    return {f"cores in use while idle ({PROCESSOR}, {SCHEDULER} and all else)": f"{meter.seconds / IDLE_SECONDS:.2f}"}


def _list_seconds(place: Checkout) -> float:
    settings = place.home.read()
    with httpx.Client(base_url=airflow_url(settings), timeout=120) as client:
        login = client.post("/auth/token", json={"username": ADMIN, "password": settings.password}).raise_for_status()
        headers = {"Authorization": f"Bearer {login.json()['access_token']}"}

        def once() -> float:
            began = time.monotonic()
            client.get("/ui/dags", params={"limit": 50, "dag_runs_limit": 14}, headers=headers).raise_for_status()
            return time.monotonic() - began

        return max(once() for _ in range(5))


def _start_seconds(place: Checkout) -> float:
    lags = []
    for _ in range(5):
        run_id = place.run("evaluate_many_000", {"split": "val", "skill": "seed", "compare_to": None})
        [first] = [row for row in place.api.task_instances("evaluate_many_000", run_id) if row["task_id"] == "prepare"]
        queued = place.api.run("evaluate_many_000", run_id)["queued_at"]
        began, asked = (datetime.fromisoformat(moment) for moment in (first["start_date"], queued))
        lags.append((began - asked).total_seconds())
    return max(lags)


def _appears(place: Checkout) -> float:
    began = time.monotonic()
    add_benchmark(PLACE, "newcomer", LAYER)
    place.api.wait_for_dag("train_newcomer", SECONDS)
    return time.monotonic() - began


def _is_named(place: Checkout) -> float:
    began = time.monotonic()
    add_benchmark(PLACE, "broken", {"train": {"num_epoch": 1}})
    while not any("benchmark broken" in text for text in place.api.import_errors().values()):
        if time.monotonic() - began > SECONDS:
            raise PlatformError("the broken benchmark is not named")
        time.sleep(0.5)
    return time.monotonic() - began
