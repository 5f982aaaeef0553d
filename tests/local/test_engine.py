import gc
import os
import signal
import socket
import threading
import warnings
from pathlib import Path

import docker
import pytest
from requests import ReadTimeout

from local import engine, image
from skillopt_airflow.core.errors import EngineUnavailable
from skillopt_airflow.sandbox.docker.container import FOLDER_LABEL, SANDBOX_LABEL


@pytest.fixture
def no_other_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(engine, "DEFAULT_SOCKET", f"unix://{tmp_path}/none.sock")


def test_whoever_may_not_install_packages_is_told_which_are_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(EngineUnavailable, match=r"^docker.io is missing\."):
        engine.install_packages("docker.io")


def test_nobody_answers_at_a_stale_socket_or_a_closed_port(tmp_path: Path):
    assert not engine.answers(f"unix://{tmp_path}/none.sock")
    assert not engine.answers("tcp://127.0.0.1:9")


def answers_of_an_engine_that_goes_away(path: Path) -> bool:
    with socket.create_server(str(path), family=socket.AF_UNIX) as server:

        def hang_up() -> None:
            server.accept()[0].close()
            server.close()

        dying = threading.Thread(target=hang_up)
        dying.start()
        answer = engine.answers(f"unix://{path}")
        dying.join()
        return answer


def test_an_engine_that_dies_as_it_is_asked_leaves_no_open_socket(tmp_path: Path):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        answers = [answers_of_an_engine_that_goes_away(tmp_path / f"{number}.sock") for number in range(8)]
        gc.collect()
    assert not any(answers)
    assert [str(warning.message) for warning in found] == []


@pytest.mark.usefixtures("no_other_engine")
def test_an_address_of_the_users_where_nobody_answers_is_not_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(engine, "answers", lambda url: url == engine.DEFAULT_SOCKET)
    monkeypatch.setenv("DOCKER_HOST", "tcp://10.0.0.5:2376")
    with pytest.raises(EngineUnavailable, match=r"DOCKER_HOST=tcp://10\.0\.0\.5:2376: .* TLS .* sandbox\.conn_id"):
        engine.ensure(tmp_path, print)
    monkeypatch.setenv("DOCKER_HOST", engine.OwnEngine(tmp_path).url)
    assert engine.ensure(tmp_path, print) == engine.DEFAULT_SOCKET


def test_an_engine_that_does_not_remove_its_containers_ends_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def client(base_url: str) -> None:
        raise ReadTimeout("read timed out")

    ended: list[engine.OwnEngine] = []
    monkeypatch.setattr(docker, "APIClient", client)
    monkeypatch.setattr(engine, "answers", lambda url: True)
    monkeypatch.setattr(engine, "_end", ended.append)
    with pytest.raises(EngineUnavailable, match=rf"sandboxes of {tmp_path} may be left .*: read timed out"):
        engine.stop(tmp_path)
    assert ended == [engine.OwnEngine(tmp_path)]


@pytest.mark.usefixtures("no_other_engine")
@pytest.mark.parametrize(
    ("uid", "daemon", "apt"), [(1000, "/usr/sbin/dockerd", ""), (1000, None, "/usr/bin/apt-get"), (0, None, None)]
)
def test_where_no_engine_can_be_started_or_installed_the_fix_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, uid: int, daemon: str | None, apt: str | None
):
    monkeypatch.setattr(engine, "_dockerd", lambda: daemon)
    monkeypatch.setattr(engine.shutil, "which", lambda *args, **kwargs: apt)
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    with pytest.raises(EngineUnavailable, match="DOCKER_HOST"):
        engine.ensure(tmp_path, print)


@pytest.mark.usefixtures("no_other_engine")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts an engine")
def test_what_dockerd_says_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    broken = tmp_path / "dockerd"
    broken.write_text("#!/bin/sh\necho 'failed to start daemon: no cgroups here'\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(engine, "_dockerd", lambda: str(broken))
    with pytest.raises(EngineUnavailable, match="no cgroups here"):
        engine.ensure(tmp_path, print)
    assert not engine.OwnEngine(tmp_path).runtime.exists()


@pytest.mark.usefixtures("no_other_engine")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts an engine")
def test_overlay_trouble_leads_to_the_slower_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    broken = tmp_path / "dockerd"
    broken.write_text(
        '#!/bin/sh\necho "$@"; echo "error initializing graphdriver: overlay2 is not supported"\nexit 1\n'
    )
    broken.chmod(0o755)
    monkeypatch.setattr(engine, "_dockerd", lambda: str(broken))
    said: list[str] = []
    with pytest.raises(EngineUnavailable, match="--storage-driver=vfs"):
        engine.ensure(tmp_path, said.append)
    assert "vfs" in said[-1]


def own_processes(home: Path) -> list[str]:
    mark = f"SKILLOPT_HOME={home}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and mark in (entry / "environ").read_bytes().split(b"\0"):
                found.append((entry / "cmdline").read_bytes().decode(errors="replace"))
        except OSError:
            continue
    return found


@pytest.mark.engine
@pytest.mark.usefixtures("no_other_engine")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root starts an engine")
@pytest.mark.parametrize("killed", [False, True])
def test_an_engine_of_our_own_starts_once_and_leaves_nothing(tmp_path: Path, killed: bool):
    own = engine.OwnEngine(tmp_path)
    try:
        assert engine.ensure(tmp_path, print) == own.url
        said: list[str] = []
        assert engine.ensure(tmp_path, said.append) == own.url
        assert said == []
        if killed:
            os.kill(int(own.pidfile.read_text()), signal.SIGKILL)
    finally:
        engine.stop(tmp_path)

    assert own_processes(tmp_path) == []
    assert not own.runtime.exists()
    assert not any(str(tmp_path) in line for line in Path("/proc/self/mounts").read_text().splitlines())


@pytest.mark.engine
def test_only_the_containers_of_a_home_are_removed(docker_host: str, tmp_path: Path):
    ours, other, folder = tmp_path / "ours", tmp_path / "other", tmp_path / "skillopt-staged"
    folder.mkdir()
    client = docker.DockerClient(base_url=docker_host)
    try:
        for home in (ours, other):
            labels = {SANDBOX_LABEL: str(home), FOLDER_LABEL: str(folder if home == ours else home)}
            client.containers.create(image.IMAGE, labels=labels, network_mode="none")

        assert engine.remove_containers(docker_host, ours) == 1
        assert not folder.exists()
        assert engine.remove_containers(docker_host, other) == 1
    finally:
        client.close()
