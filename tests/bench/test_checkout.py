"""The copy of the project in which the measurements run."""

import subprocess
import sys
from pathlib import Path

from bench.checkout import add_benchmark, copy_tracked, environment


def test_the_commands_of_a_copy_know_its_benchmarks_and_connections(tmp_path: Path) -> None:
    copy_tracked(tmp_path)
    add_benchmark(tmp_path, "bench_other", {"train": {"num_epochs": 1}})
    program = (
        "import os; from skillopt_airflow import benchmarks; "
        "print(benchmarks.folder('bench_other'), os.environ['AIRFLOW_CONN_SLOW'])"
    )
    said = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=environment(tmp_path, {"slow": "http://"}),
        check=True,
        capture_output=True,
        text=True,
    )
    assert said.stdout.split() == [str(tmp_path / "benchmarks" / "bench_other"), "http://"]
