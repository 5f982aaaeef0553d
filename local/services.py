"""Background services, identified by their environment."""

import hashlib
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Event
from typing import Any

import httpx
import psutil

from local import processes
from local.environment import inherited
from local.home import PROJECT, Home
from skillopt_airflow.core.errors import PlatformError
from skillopt_airflow.core.values.types import canonical_json

SERVICE_VARIABLE = "SKILLOPT_SERVICE"
CONFIGURATION_VARIABLE = "SKILLOPT_SERVICE_CONFIGURATION"
END_SECONDS = 10.0
POLL_SECONDS = 0.1
LOG_LINES = 15
LOCK = PROJECT / "requirements-local.txt"
"""Lock file of the virtual environment."""
PACKAGE = PROJECT / "include"


@dataclass(frozen=True)
class Service:
    """One process and its children."""

    name: str
    command: tuple[str, ...]
    variables: Mapping[str, str]
    """The platform's variables; a changed value restarts the service."""
    sources: tuple[Path, ...] = ()
    """Files and folders that it imports; changed content restarts the service."""

    @cached_property
    def fingerprint(self) -> str:
        """Hash of configuration and code."""
        digest = hashlib.sha256(canonical_json([*self.command, dict(self.variables)]).encode())
        for source in self.sources:
            for path in sorted(source.rglob("*")) if source.is_dir() else [source]:
                if "__pycache__" not in path.parts and path.is_file():
                    content = path.read_bytes()
                    digest.update(f"{path}\0{len(content)}\0".encode() + content)
        return digest.hexdigest()


def running(home: Home, name: str) -> psutil.Process | None:
    return next((process for process in _members(home, name) if _leads_session(process.pid)), None)


def log_path(home: Home, name: str) -> Path:
    return home.logs / f"{name}.log"


def new_log(home: Home, name: str) -> Path:
    """Return the path of a new log; rename the previous one."""
    log = log_path(home, name)
    if log.exists():
        log.replace(log.with_suffix(".previous.log"))
    return log


def stop(home: Home, name: str) -> None:
    processes.end(_members(home, name), END_SECONDS)


def ensure(home: Home, service: Service, is_ready: Callable[[], bool], cancelled: Event, seconds: float) -> None:
    """Start the service if necessary, and wait until it is ready."""
    is_alive, _ = ensure_process(home, service)
    wait(home, service.name, is_ready, cancelled, seconds, is_alive)


def ensure_process(home: Home, service: Service) -> tuple[Callable[[], bool], bool]:
    """Start or restart the process if necessary; return a liveness check, and True for a new process."""
    main = running(home, service.name)
    if main is not None and processes.variable(main, CONFIGURATION_VARIABLE) == service.fingerprint:
        return lambda: processes.is_alive(main), False
    stop(home, service.name)
    marks = {SERVICE_VARIABLE: service.name, CONFIGURATION_VARIABLE: service.fingerprint}
    environment = inherited(os.environ) | dict(service.variables) | marks
    child = launch(home, service.name, service.command, PROJECT, environment)
    return lambda: child.poll() is None, True


def launch(
    home: Home, name: str, command: Sequence[str], folder: Path, environment: dict[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a program in its own session, with a new log."""
    with new_log(home, name).open("wb") as log:
        files: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
        return subprocess.Popen(command, env=environment, cwd=folder, start_new_session=True, **files)


def wait(
    home: Home, name: str, is_ready: Callable[[], bool], cancelled: Event, seconds: float, is_alive: Callable[[], bool]
) -> None:
    deadline = time.monotonic() + seconds
    while not is_ready():
        if cancelled.is_set():
            raise PlatformError(f"{name}: the start was cancelled")
        if not is_alive():
            raise PlatformError(f"{name} ended at once; {last_lines(log_path(home, name))}")
        if time.monotonic() > deadline:
            raise PlatformError(f"{name} is not ready after {seconds:.0f} s; {last_lines(log_path(home, name))}")
        cancelled.wait(POLL_SECONDS)


def serves(url: str) -> bool:
    try:
        return httpx.get(url, timeout=5, trust_env=False).is_success
    except httpx.TransportError:
        return False


def last_lines(log: Path) -> str:
    """Return the end of a log for an error message."""
    lines = log.read_text(errors="replace").splitlines()[-LOG_LINES:] if log.exists() else []
    return "\n".join([f"the last lines of {log}:", *(f"  {line}" for line in lines)])


def _members(home: Home, name: str) -> list[psutil.Process]:
    return [process for process in processes.of_home(home) if processes.variable(process, SERVICE_VARIABLE) == name]


def _leads_session(pid: int) -> bool:
    try:
        return os.getsid(pid) == pid
    except ProcessLookupError:
        return False
