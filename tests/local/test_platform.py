import os
import signal
from pathlib import Path

import psutil
import pytest
from platform_control import RunningPlatform, control

from local import airflow_services, engine, platform, processes, services
from local.home import Home

pytestmark = pytest.mark.platform


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
