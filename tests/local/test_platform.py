import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from io import BytesIO
from pathlib import Path

import docker
import pandas as pd
import psutil
import pytest
from platform_control import RunningPlatform, control, write_settings

from local import airflow_services, engine, platform, processes, services
from local.home import Home
from local.served import served
from tests.pipeline.faulty_model import SlowModel
from tests.pipeline.trained_run import (
    DAG,
    SHORT,
    TrainedRun,
    create_connection,
    executions,
    stand_in,
    wait_for_task,
)

pytestmark = pytest.mark.platform


@pytest.fixture(scope="module")
def own(docker_host: str) -> Iterator[RunningPlatform]:
    root = Path(tempfile.mkdtemp(prefix="skillopt-platform-"))
    write_settings(root)
    control(root, "up", DOCKER_HOST=docker_host)
    with closing(RunningPlatform(root)) as running:
        yield running
    control(root, "down", DOCKER_HOST=docker_host)
    shutil.rmtree(root)


def mains(home: Home) -> dict[str, int | None]:
    found = {name: services.running(home, name) for name in ("s3", "model", *airflow_services.NAMES)}
    return {name: process.pid if process is not None else None for name, process in found.items()}


def test_everything_runs_and_is_healthy(own: RunningPlatform):
    assert None not in mains(own.home).values()
    health = airflow_services.health(own.settings)
    assert {
        name: health[name] for name in ("metadatabase", "scheduler", "triggerer", "dag_processor")
    } == dict.fromkeys(("metadatabase", "scheduler", "triggerer", "dag_processor"), "healthy")
    assert {bucket["Name"] for bucket in own.s3.list_buckets()["Buckets"]} >= {"skillopt", "skillopt-artifacts"}


def test_every_server_listens_on_loopback_only(own: RunningPlatform):
    ours = {process.pid for process in processes.of_home(own.home)}
    # Asked of the system, not of each process: workers come and go meanwhile.
    listening = {
        connection.laddr.ip
        for connection in psutil.net_connections(kind="inet")
        if connection.status == psutil.CONN_LISTEN and connection.pid in ours
    }
    assert listening == {"127.0.0.1"}


@pytest.mark.nightly
def test_a_second_up_finds_the_first(own: RunningPlatform, docker_host: str):
    before = mains(own.home)
    control(own.home.root, "up", DOCKER_HOST=docker_host)
    assert mains(own.home) == before


@pytest.mark.nightly
def test_up_repairs_a_killed_scheduler_and_leaves_the_rest(own: RunningPlatform, docker_host: str):
    before = mains(own.home)
    scheduler = before.pop("scheduler")
    assert scheduler is not None
    os.kill(scheduler, signal.SIGKILL)
    control(own.home.root, "up", DOCKER_HOST=docker_host)
    after = mains(own.home)

    assert after.pop("scheduler") not in {None, scheduler}
    assert after == before
    assert not [process for process in processes.of_home(own.home) if process.pid == scheduler]


def test_a_killed_worker_and_a_restarted_scheduler_change_nothing(own: RunningPlatform, plain_started: TrainedRun):
    with served(SlowModel(stand_in(own), delay=0.0)) as model:
        create_connection(own, "skillopt_slow", model.base_url, "openai-chat:stand-in-target")
        slowly = {
            "model.target_conn_id": "skillopt_slow",
            "model.concurrency": 2,
            "storage.prefix": f"killed-{time.time_ns()}/",
        }
        killed = TrainedRun.trigger(own, f"killed-{time.time_ns()}", SHORT | slowly)
        wait_for_task(own, DAG, killed.run_id, "evaluate_seed", "success")
        model.delay = 0.5
        before = rows_of_a_rollout_under_way(killed)
        kill_workers(own)
        model.delay = 0.0
        control(own.home.root, "up", DOCKER_HOST=own.environment["DOCKER_HOST"])
        killed.wait()
    plain = plain_started.wait()
    assert 0 < before < 40
    assert executions(killed) == {1}
    assert killed.store.get_text(killed.keys.best_skill) == plain.store.get_text(plain.keys.best_skill)
    assert killed.state == plain.state


def test_down_leaves_nothing_even_without_records(own: RunningPlatform, docker_host: str):
    own.home.settings_file.unlink()
    postmaster = Path(own.home.postgres / "postmaster.pid").read_text().split()[0]
    os.kill(int(postmaster), signal.SIGKILL)
    control(own.home.root, "down", DOCKER_HOST=docker_host)

    assert not platform.is_running(own.home)
    assert not own.home.sockets.exists()
    assert not [path for path in own.home.root.rglob("*") if path.is_socket()]
    assert not engine.OwnEngine(own.home.root).runtime.exists()
    assert engine.remove_containers(docker_host, own.home.root) == 0


def rows_of_a_rollout_under_way(run: TrainedRun) -> int:
    """Wait until a rollout of the first step is under way with some of its rows stored; how many are."""
    deadline = time.monotonic() + 300
    label = [f"skillopt.run={run.keys.run}", "skillopt.stage=rollout"]
    with closing(docker.DockerClient(base_url=run.platform.environment["DOCKER_HOST"])) as client:
        while time.monotonic() < deadline:
            if client.containers.list(filters={"label": label}, ignore_removed=True):
                keys = [key for key in run.store.list_keys(f"{run.prefix}trajectories/") if "/split=train/" in key]
                if keys:
                    return sum(len(pd.read_parquet(BytesIO(run.store.get_bytes(key)))) for key in keys)
            assert run.platform.api.run(DAG, run.run_id)["state"] != "failed", run.failures()
            time.sleep(0.1)
    raise AssertionError(f"no rollout of {run.run_id} was seen half done")


def kill_workers(running: RunningPlatform) -> None:
    """End the scheduler and every worker and task below it, with no chance to tidy up."""
    scheduler = services.running(running.home, "scheduler")
    assert scheduler is not None
    for victim in (*scheduler.children(recursive=True), scheduler):
        with suppress(psutil.NoSuchProcess):  # a task may end by itself meanwhile
            victim.kill()
