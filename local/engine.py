"""A Docker engine for the local platform: a running one, or one started by the platform."""

import fcntl
import hashlib
import http.client
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import docker
import psutil
from docker.errors import DockerException
from requests import RequestException

from local import processes
from local.home import SubPath
from skillopt_airflow.core.errors import EngineUnavailable
from skillopt_airflow.sandbox.docker.container import SANDBOX_LABEL, remove_all

Report = Callable[[str], None]

DEFAULT_SOCKET = "unix:///var/run/docker.sock"
STORAGE_DRIVERS = ("", "vfs")
START_SECONDS = 60.0
STOP_SECONDS = 30.0
PING_SECONDS = 5
LOG_LINES = 8
APT_LOCK = Path("/run/skillopt-apt-get.lock")
"""In a folder that only root can write; in /tmp, another user could replace it with a link."""


@dataclass(frozen=True)
class OwnEngine:
    """Folders and files of a platform's own engine."""

    root: Path
    """The platform's folder."""

    data = SubPath("docker")
    log = SubPath("docker/dockerd.log")
    pidfile = SubPath("docker/dockerd.pid")

    @property
    def runtime(self) -> Path:
        """Return the folder for sockets; not below root, because socket paths are limited to 107 characters."""
        return Path("/run") / f"skillopt-{hashlib.sha256(str(self.root).encode()).hexdigest()[:10]}"

    @property
    def url(self) -> str:
        return f"unix://{self.runtime}/docker.sock"


def ensure(home: Path, report: Report) -> str:
    """Return the DOCKER_HOST of a running engine; install and start one if necessary."""
    own = OwnEngine(home.resolve())
    url = _running(own)
    if url is not None:
        return url
    daemon = _dockerd()
    if os.geteuid() != 0 or (daemon is None and shutil.which("apt-get") is None):
        raise EngineUnavailable(
            "no Docker engine responds, and only root can start or install one (on Debian or Ubuntu). Start or install "
            "Docker (https://docs.docker.com/engine/install/), join the group docker, or set DOCKER_HOST"
        )
    if daemon is None:
        report("installing the Docker engine (docker.io)")
        install_packages("docker.io")
        daemon = _dockerd()
        if daemon is None:
            raise EngineUnavailable("docker.io was installed without dockerd. Install a Docker engine manually")
        if answers(DEFAULT_SOCKET):
            return DEFAULT_SOCKET
    return _start(own, daemon, report)


def stop(home: Path) -> None:
    """Stop the engine that `ensure` started for this home, and remove its sockets and mounts."""
    own = OwnEngine(home.resolve())
    try:
        if answers(own.url):
            remove_containers(own.url, own.root)
    finally:
        _end(own)


def _end(own: OwnEngine) -> None:
    daemons = [process for process in processes.of_engine(own.root) if process.name() == "dockerd"]
    processes.end(daemons, STOP_SECONDS)
    # The first process of each container has another environment.
    processes.kill(processes.with_children(processes.of_engine(own.root)), STOP_SECONDS)
    _unmount(own)
    shutil.rmtree(own.runtime, ignore_errors=True)
    own.pidfile.unlink(missing_ok=True)


def remove_containers(docker_host: str, home: Path) -> int:
    """Remove every sandbox that belongs to this home, running or not, its volumes and folder; how many there were."""
    try:
        with closing(docker.APIClient(base_url=docker_host)) as client:
            return remove_all(client, {SANDBOX_LABEL: str(home.resolve())})
    except (DockerException, RequestException) as error:
        raise EngineUnavailable(
            f"sandboxes of {home} may be left on the Docker engine at {docker_host}: {error}"
        ) from error


def answers(url: str) -> bool:
    if url.startswith("unix://"):
        return _pings(url.removeprefix("unix://"))
    try:
        with closing(docker.DockerClient(base_url=url, timeout=PING_SECONDS)) as client:
            return bool(client.ping())
    except (DockerException, RequestException):
        return False


def _pings(socket_path: str) -> bool:
    """Ping without the Docker client, which leaks its socket if the engine stops while it connects."""
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection,
        closing(http.client.HTTPConnection("localhost")) as client,
    ):
        connection.settimeout(PING_SECONDS)
        client.sock = connection
        try:
            connection.connect(socket_path)
            client.request("GET", "/_ping")
            return client.getresponse().status == http.HTTPStatus.OK
        except (OSError, http.client.HTTPException):
            return False


def _running(own: OwnEngine) -> str | None:
    named = os.environ.get("DOCKER_HOST", "")
    if named and answers(named):
        return named
    # DOCKER_HOST may still name our engine, which stopped with the platform.
    if named not in ("", own.url):
        raise EngineUnavailable(
            f"DOCKER_HOST={named}: no Docker engine responds. Start it, or unset DOCKER_HOST to use this machine's "
            "engine. An engine with TLS needs an Airflow connection in sandbox.conn_id"
        )
    return next((url for url in (DEFAULT_SOCKET, own.url) if answers(url)), None)


def _dockerd() -> str | None:
    return shutil.which("dockerd", path=_search_path())


def _search_path() -> str:
    """Return the PATH with sbin, which has dockerd and runc and can be missing from root's PATH."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/local/sbin", "/usr/sbin", "/sbin"])


def install_packages(*packages: str) -> None:
    """Install Debian or Ubuntu packages as root; a lock serializes calls of apt-get."""
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise EngineUnavailable(
            f"{' and '.join(packages)} is missing. Install it; only root on Debian or Ubuntu gets it automatically"
        )
    with APT_LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for command in (["update"], ["install", "-y", "--no-install-recommends", *packages]):
            result = subprocess.run(
                ["apt-get", "-q", *command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                check=False,
            )
            if result.returncode != 0:
                tail = " | ".join(result.stdout.strip().splitlines()[-LOG_LINES:])
                raise EngineUnavailable(f"apt-get {' '.join(command)} failed: {tail}")


def _start(own: OwnEngine, daemon: str, report: Report) -> str:
    report("starting a Docker engine for this folder")
    stop(own.root)
    for driver in STORAGE_DRIVERS:
        own.data.mkdir(parents=True, exist_ok=True)
        own.runtime.mkdir(mode=0o700, exist_ok=True)
        if _is_up(own, _launch(own, daemon, driver)):
            return own.url
        stop(own.root)
        text = own.log.read_text(errors="replace")
        if not any(word in text.lower() for word in ("overlay", "storage driver", "graphdriver")):
            break
        report("the engine can't use overlay2; trying the slower storage driver vfs")
    end = " | ".join(text.strip().splitlines()[-LOG_LINES:]) or "it wrote no log"
    raise EngineUnavailable(f"dockerd does not start: {end} (log: {own.log})")


def _launch(own: OwnEngine, daemon: str, driver: str) -> int:
    """Start dockerd without bridge, iptables, and forwarding, because sandboxes have no network."""
    command = [
        daemon,
        f"--host={own.url}",
        f"--data-root={own.data}",
        f"--exec-root={own.runtime}/exec",
        f"--pidfile={own.pidfile}",
        "--bridge=none",
        "--iptables=false",
        "--ip-forward=false",
        "--ip-masq=false",
        *([f"--storage-driver={driver}"] if driver else []),
    ]
    environment = {**os.environ, "PATH": _search_path(), "SKILLOPT_HOME": str(own.root)}
    to_log = (os.POSIX_SPAWN_OPEN, 1, str(own.log), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    files = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), to_log, (os.POSIX_SPAWN_DUP2, 1, 2)]
    # Not a Popen: the daemon outlives this process.
    return os.posix_spawn(daemon, command, environment, file_actions=files, setsid=True)


def _is_up(own: OwnEngine, pid: int) -> bool:
    daemon, deadline = psutil.Process(pid), time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and processes.is_alive(daemon):
        if answers(own.url):
            return True
        time.sleep(0.1)
    return False


def _unmount(own: OwnEngine) -> None:
    """Unmount file systems that a killed engine left, the deepest first."""
    roots = (own.data, own.runtime)
    mounts = [line.split()[1].replace("\\040", " ") for line in Path("/proc/self/mounts").read_text().splitlines()]
    for mount in reversed([mount for mount in mounts if any(Path(mount).is_relative_to(root) for root in roots)]):
        subprocess.run(["umount", "--lazy", mount], stderr=subprocess.DEVNULL, check=False)
