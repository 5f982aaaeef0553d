"""A copy of the project with other benchmarks and its own platform.

DAG parsing fixes the shape of a graph, so a run's overrides can't change it.
"""

import os
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from rich.progress import Progress

from local import airflow_services, objectstore
from local.demo import steps_done
from local.environment import s3_url
from local.home import PROJECT, Home
from skillopt_airflow.core.config.resource_groups import StorageGroup
from skillopt_airflow.core.errors import PlatformError
from skillopt_airflow.core.run.history import History
from skillopt_airflow.store.keys import RunKeys, run_name
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.training.run.timing import StageTiming

PLACE = PROJECT / ".local" / "bench"
RUN_SECONDS = 4 * 3600.0
PROGRESS_SECONDS = 20.0
LOG_LINES = 20


class Checkout:
    """The running platform of a copy of the project."""

    def __init__(self, home: Home) -> None:
        self.home, settings = home, home.read()
        self.api = airflow_services.api(settings)
        self.store = ObjectStore(objectstore.client(s3_url(settings)), StorageGroup().bucket)

    def wait_for(self, benchmark: str) -> None:
        for name in (f"train_{benchmark}", f"train_{benchmark}_epoch"):
            self.api.wait_for_dag(name)

    def train(self, benchmark: str, overrides: Mapping[str, Any], steps: int) -> History:
        """Run `train_<benchmark>` to its end, with a progress bar.

        Raises:
            PlatformError: the run did not succeed.
        """
        dag_id = f"train_{benchmark}"
        self.wait_for(benchmark)
        with Progress() as progress:
            bar = progress.add_task(dag_id, total=steps)
            updated = time.monotonic()

            def show(run_id: str) -> None:
                nonlocal updated
                # Counting reads every task instance, so doing it at each poll would distort the measurement.
                if time.monotonic() - updated > PROGRESS_SECONDS:
                    progress.update(bar, completed=self._steps(dag_id, run_id))
                    updated = time.monotonic()

            run_id = self.run(dag_id, {"overrides": dict(overrides)}, show)
        keys = RunKeys("", benchmark, run_name(run_id))
        return self.store.get_model(keys.history, History)

    def run(self, dag_id: str, conf: Mapping[str, Any], show: Callable[[str], None] = lambda run_id: None) -> str:
        """Run a DAG to its end and return the run's id; call `show` with it at each poll.

        Raises:
            PlatformError: the run did not succeed.
        """
        self.api.wait_for_dag(dag_id)
        run_id = self.api.trigger(dag_id, dict(conf))
        state = self.api.wait(dag_id, run_id, lambda _: show(run_id), RUN_SECONDS)
        if state != "success":
            raise PlatformError(f"{dag_id}: run {run_id} ended as {state}\n{self._failures(dag_id, run_id)}")
        return run_id

    def timings(self, keys: RunKeys) -> dict[str, list[StageTiming]]:
        """Return the timings of a run's tasks by moment."""
        folder, found = keys.folder, defaultdict[str, list[StageTiming]](list)
        for key in self.store.list_keys(folder):
            moment, timing, _ = key.removeprefix(folder).partition("/timing/")
            if timing:
                found[moment].append(self.store.get_model(key, StageTiming))
        return found

    def _failures(self, dag_id: str, run_id: str) -> str:
        """Return the last log lines of failed tasks, because the platform stops afterwards."""
        lines = []
        for row in self.api.task_instances(dag_id, run_id):
            if row["state"] == "failed":
                log = self.api.log(dag_id, run_id, row["task_id"], row["try_number"], row["map_index"])
                lines += [f"{row['task_id']}:", *log[-LOG_LINES:]]
        return "\n".join(lines)

    def _steps(self, dag_id: str, run_id: str) -> int:
        runs = [run["dag_run_id"] for run in self.api.runs(f"{dag_id}_epoch") if run["dag_run_id"].startswith(run_id)]
        return steps_done(row for run in runs for row in self.api.task_instances(f"{dag_id}_epoch", run))


@contextmanager
def checkout(benchmarks: Mapping[str, Mapping[str, Any]], **connections: str) -> Iterator[Checkout]:
    """Run a platform whose benchmarks are SearchQA with the given benchmark.yaml contents, and delete it afterwards.

    `connections` are Airflow's, by id.
    """
    shutil.rmtree(PLACE, ignore_errors=True)
    copy_tracked(PLACE)
    for name, layer in benchmarks.items():
        add_benchmark(PLACE, name, layer)
    command = [sys.executable, "-m", "local"]
    variables = environment(PLACE, connections)
    try:
        subprocess.run([*command, "up"], cwd=PLACE, env=variables, check=True)
        yield Checkout(Home.at(PLACE / ".local"))
    finally:
        subprocess.run([*command, "down"], cwd=PLACE, env=variables, check=False)
        shutil.rmtree(PLACE, ignore_errors=True)


def environment(root: Path, connections: Mapping[str, str]) -> dict[str, str]:
    variables = {name: value for name, value in os.environ.items() if name != "SKILLOPT_HOME"}
    # Else Python imports the installed project, without the copy's benchmarks.
    variables["PYTHONPATH"] = str(root / "include")
    return variables | {f"AIRFLOW_CONN_{name.upper()}": value for name, value in connections.items()}


def copy_tracked(target: Path) -> None:
    """Copy all files in git."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=PROJECT, check=True, capture_output=True, text=True)
    for name in filter(None, listed.stdout.split("\0")):
        source = PROJECT / name
        if source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target / name)


def add_benchmark(root: Path, name: str, layer: Mapping[str, Any]) -> None:
    """Add a copy of SearchQA with another benchmark.yaml."""
    source, folder = root / "benchmarks" / "searchqa", root / "benchmarks" / name
    folder.mkdir()
    shutil.copy2(source / "adapter.py", folder)
    (folder / "benchmark.yaml").write_text(yaml.safe_dump(dict(layer)), encoding="utf-8")
    skill = root / "skills" / name / "initial.md"
    skill.parent.mkdir()
    shutil.copy2(root / "skills" / "searchqa" / "initial.md", skill)
