"""The DAG files as Airflow's processes see them: what importing them loads, and what they build."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from skillopt_airflow import benchmarks
from skillopt_airflow.pipeline.all_dags import FACTORIES
from skillopt_airflow.pipeline.tasks.dag_ids import cleanup_dag_id, train_dag_id

PROJECT = Path(__file__).parents[1]
DAG_FILES = sorted(PROJECT.glob("dags/**/*.py"))
PROBE = Path(__file__).with_name("dag_probe.py")

TOO_HEAVY_TO_PARSE = {
    "boto3",
    "botocore",
    "docker",
    "great_expectations",
    "kubernetes",
    "openai",
    "pandas",
    "pyarrow",
    "pydantic_ai",
}


@pytest.fixture(scope="module")
def parsed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")}
    home = {"AIRFLOW_HOME": str(tmp_path_factory.mktemp("airflow")), "PYTHONPATH": f"{PROJECT / 'include'}:{PROJECT}"}
    done = subprocess.run(
        [sys.executable, str(PROBE), *map(str, DAG_FILES)], env=own | home, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@pytest.mark.nightly
def test_parsing_loads_nothing_heavy(parsed: dict[str, Any]) -> None:
    loaded = {name.partition(".")[0] for name in parsed["modules"]}
    assert not loaded & TOO_HEAVY_TO_PARSE


def test_every_benchmark_has_its_dags_and_all_have_one_cleanup(parsed: dict[str, Any]) -> None:
    names = benchmarks.names()
    assert names
    assert set(parsed["dags"]) == {cleanup_dag_id()} | {dag_id(name) for name in names for dag_id in FACTORIES}


def test_every_dag_says_what_it_is_and_runs_only_when_asked(parsed: dict[str, Any]) -> None:
    for name, dag in parsed["dags"].items():
        assert "skillopt" in dag["tags"], name
        assert (dag["doc_md"] or "").strip(), name
        assert dag["catchup"] is False, name
        # Nights are scheduled, once somebody has switched them on.
        assert (dag["schedule"] is None) != dag["paused"], name


def test_every_task_has_an_owner_retries_and_a_limit(parsed: dict[str, Any]) -> None:
    for name, dag in parsed["dags"].items():
        for task_id, task in dag["tasks"].items():
            assert task["owner"] == "skillopt", (name, task_id)
            assert task["retries"] >= 1, (name, task_id)
            # Waiting for an epoch takes as long as the epoch, whose tasks have their own limits, and people take days.
            waits = task_id.startswith("epoch_") or task_id.endswith("approve")
            assert (task["seconds"] is None) == waits, (name, task_id)


def test_the_report_task_leads_to_the_report(parsed: dict[str, Any]) -> None:
    for name in benchmarks.names():
        tasks = parsed["dags"][train_dag_id(name)]["tasks"]
        assert tasks["report"]["links"] == ["Report"]
        assert "Report" not in [link for task_id in tasks if task_id != "report" for link in tasks[task_id]["links"]]
