"""The README's four ways of use, its commands run as they stand there against a running platform."""

import json
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from local.environment import airflow_url
from local.objectstore import UNCHECKED_KEY
from skillopt_airflow.store.artifacts import ArtifactStore
from skillopt_airflow.store.keys import ArtifactKeys, RunKeys, run_name
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.training.run import RunRecord
from tests.pipeline.trained_run import DAG, set_paused, token, wait_for_task
from tests.store.test_artifacts import provenance
from tests.test_readme import COMMANDS, PROJECT

pytestmark = pytest.mark.platform

REGATE = "regate_searchqa"
SECONDS = 300


def command(*beginning: str) -> list[str]:
    """The README's only command that begins so, with this interpreter and its Airflow."""
    [line] = [line for line in COMMANDS if line.startswith(" ".join(beginning))]
    program, *words = shlex.split(line)
    return [sys.executable, *(["-m", "airflow"] if program == "airflow" else []), *words]


def run(words: list[str], cwd: Path, **variables: str) -> str:
    done = subprocess.run(
        words, cwd=cwd, env=os.environ | variables, capture_output=True, text=True, check=False, timeout=SECONDS
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def airflow(platform: Any) -> Iterator[httpx.Client]:
    headers = {"Authorization": f"Bearer {token(platform)}"}
    for dag in (DAG, REGATE):
        platform.api.wait_for_dag(dag)
    with httpx.Client(base_url=f"{airflow_url(platform.settings)}/api/v2", headers=headers, timeout=60) as client:
        yield client
        set_paused(platform, REGATE, paused=True)


def test_trigger(platform: Any, airflow: httpx.Client) -> None:
    words = command("airflow", "dags trigger", DAG, '--conf \'{"train.num_epochs"')
    conf = json.loads(words[words.index("--conf") + 1])
    run(words, PROJECT, **platform.environment)
    [run_id] = {row["dag_run_id"] for row in platform.api.runs(DAG) if row["conf"].items() >= conf.items()}
    try:
        wait_for_task(platform, DAG, run_id, "prepare", "success")
        record = ObjectStore(platform.s3, "skillopt").get_model(
            RunKeys("", "searchqa", run_name(run_id)).config, RunRecord
        )
        assert (record.config.train.num_epochs, record.config.publishing.approval) == (2, True)
    finally:
        airflow.patch(f"/dags/{DAG}/dagRuns/{run_id}", json={"state": "failed"}).raise_for_status()


def test_every_night(platform: Any, airflow: httpx.Client) -> None:
    assert airflow.get(f"/dags/{REGATE}").json()["is_paused"] is True
    run(command("airflow", "dags unpause", REGATE), PROJECT, **platform.environment)
    assert airflow.get(f"/dags/{REGATE}").json()["is_paused"] is False


def test_backfill(platform: Any, airflow: httpx.Client) -> None:
    words = command("airflow", "backfill create")
    conf = json.loads(words[words.index("--dag-run-conf") + 1])
    set_paused(platform, REGATE, paused=False)
    run(words, PROJECT, **platform.environment)
    deadline = time.monotonic() + SECONDS
    while True:
        nights = {row["dag_run_id"]: row["state"] for row in platform.api.runs(REGATE) if row["conf"] == conf}
        if len(nights) == 7 and set(nights.values()) == {"success"}:
            break
        assert time.monotonic() < deadline, nights
        time.sleep(1)
    # There are no such items: a night without any is skipped, and says where they were expected.
    for night in nights:
        assert {row["state"] for row in platform.api.task_instances(REGATE, night)} == {"skipped"}
        log = "\n".join(platform.api.log(REGATE, night, "prepare_night", 1))
        assert "no_data: " in log


def test_deploy(platform: Any, tmp_path: Path) -> None:
    words = command("python", "include/skillopt_airflow/consumer.py fetch")
    target = words[words.index("--target") + 1]
    store = ObjectStore(platform.s3, words[words.index("--bucket") + 1])
    artifacts = ArtifactStore(store, ArtifactKeys("", "searchqa", target))
    artifacts.publish("# Answer briefly\n", provenance("earlier"), artifacts.champion.read())
    (tmp_path / "include").symlink_to(PROJECT / "include")
    keys = dict.fromkeys(("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"), UNCHECKED_KEY) | {"AWS_REGION": "us-east-1"}
    run(words, tmp_path, AWS_ENDPOINT_URL=platform.s3.meta.endpoint_url, **keys)
    folder = tmp_path / words[words.index("--out") + 1]
    assert (folder / "best_skill.md").read_text(encoding="utf-8") == "# Answer briefly\n"
