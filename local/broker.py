"""The broker between Airflow's scheduler and Celery workers: a Redis that listens on a socket of the home alone."""

import shutil
import socket
from collections.abc import Callable
from pathlib import Path
from threading import Event

from local import services
from local.engine import install_packages
from local.environment import BROKER_SOCKET
from local.home import Home

NAME = "broker"
PACKAGE = PROGRAM = "redis-server"
START_SECONDS = 60.0


def ensure(home: Home, variables: dict[str, str], cancelled: Event, report: Callable[[str], None]) -> None:
    """Have the broker run; it keeps what it was given, so that one that was killed goes on."""
    if shutil.which(PROGRAM) is None:
        report(f"installing {PACKAGE}")
        install_packages(PACKAGE)
    folder = home.root / "broker"
    folder.mkdir(exist_ok=True)
    listening = ("--port", "0", "--unixsocket", str(address(home)), "--unixsocketperm", "600")
    kept = ("--dir", str(folder), "--appendonly", "yes", "--save", "")
    # A title would lie over the environment by which the process is found again.
    untitled = ("--set-proc-title", "no")
    service = services.Service(NAME, (PROGRAM, *listening, *kept, *untitled), variables)
    services.ensure(home, service, lambda: answers(address(home)), cancelled, START_SECONDS)


def address(home: Home) -> Path:
    return home.sockets / BROKER_SOCKET


def answers(path: Path) -> bool:
    """Return whether a Redis answers at the socket, and has read what it kept."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(5)
        try:
            client.connect(str(path))
            client.sendall(b"PING\r\n")
            return client.recv(64).startswith(b"+PONG")
        except OSError:
            return False
