"""The folder with all state of a local platform, and its stored settings."""

import hashlib
import json
import os
import secrets
import socket
import tempfile
from base64 import urlsafe_b64encode
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from skillopt_airflow.core.errors import PlatformError

PROJECT = Path(__file__).resolve().parent.parent
IMPORT_PATH = os.pathsep.join([str(PROJECT / "include"), str(PROJECT)])
"""PYTHONPATH for the package and this folder."""
ADMIN = "admin"
SOCKET_PATH_BYTES = 107
POSTGRES_PORT = 5432
SOCKET_NAME = f".s.PGSQL.{POSTGRES_PORT}"
"""PostgreSQL's socket, the longest name in the folder for sockets."""


@dataclass(frozen=True)
class Ports:
    """One loopback port per server."""

    airflow: int
    s3: int
    model: int
    registry: int = 0
    """The image registry for Celery workers; 0 without Celery."""


@dataclass(frozen=True)
class Workers:
    """Numbers of Celery workers."""

    count: int = 0
    """0 for LocalExecutor."""
    engines: int = 0
    """The first workers that use the Docker engine."""


NO_WORKERS = Workers()


@dataclass(frozen=True)
class Settings:
    """Stored settings of a platform: ports, keys, the login."""

    ports: Ports
    workers: Workers = NO_WORKERS
    docker_host: str = ""
    """URL of the engine at the last start; empty before the first."""
    connections: tuple[str, ...] = ()
    """Default connections that the user overrode at the last start."""
    fernet_key: str = field(default_factory=lambda: urlsafe_b64encode(secrets.token_bytes(32)).decode())
    jwt_secret: str = field(default_factory=lambda: secrets.token_urlsafe(48))
    session_key: str = field(default_factory=lambda: secrets.token_urlsafe(32))
    password: str = field(default_factory=lambda: secrets.token_urlsafe(12))
    """Password of the user `admin` in the UI."""


class SubPath:
    """A class attribute that is a path below the instance's `root`."""

    def __init__(self, path: str) -> None:
        self._path = path

    def __get__(self, folder: Any, owner: type) -> Path:
        return Path(folder.root, self._path)


@dataclass(frozen=True)
class Home:
    """Paths of a platform's folder; `root` is absolute, because it identifies the platform's processes."""

    root: Path

    postgres = SubPath("postgres")
    """PostgreSQL's data directory."""
    s3 = SubPath("s3")
    airflow = SubPath("airflow")
    """AIRFLOW_HOME."""
    bin = SubPath("bin")
    """Commands for users."""
    logs = SubPath("logs")
    """One log file per service; task logs are below AIRFLOW_HOME."""
    settings_file = SubPath("settings.json")
    """Ports, keys, and the login; readable only by the owner."""
    deployment_file = SubPath("deployment.yaml")
    """The administrator's settings; every start rewrites them."""
    lock_file = SubPath("lock")
    """Held while a process starts or stops the platform."""

    @classmethod
    def at(cls, path: Path) -> "Home":
        """Return the home at a path; create its folder if necessary."""
        root = path.expanduser().resolve()
        root.mkdir(parents=True, exist_ok=True)
        return cls(root)

    @property
    def sockets(self) -> Path:
        """Return the folder for sockets: in the home, or in the temporary folder if paths would be too long."""
        inside = self.root / "sockets"
        if len(os.fsencode(inside / SOCKET_NAME)) <= SOCKET_PATH_BYTES:
            return inside
        digest = hashlib.sha256(os.fsencode(self.root)).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"skillopt-{digest}"

    def prepare(self) -> None:
        for folder in (self.s3, self.airflow, self.logs):
            folder.mkdir(exist_ok=True)
        self.sockets.mkdir(mode=0o700, exist_ok=True)
        if self.sockets.is_symlink() or self.sockets.stat().st_uid != os.geteuid():
            raise PlatformError(f"{self.sockets} belongs to another user. Remove it, or set TMPDIR to your own folder")

    def read(self) -> Settings:
        try:
            stored = json.loads(self.settings_file.read_text())
            values = {"ports": Ports(**stored["ports"]), "workers": Workers(**stored.get("workers", {}))}
            values |= {"connections": tuple(stored.get("connections", ()))}
            return Settings(**{**stored, **values})
        except FileNotFoundError:
            raise PlatformError(f"{self.root} has no platform yet. Run `make up`") from None
        except (ValueError, TypeError, KeyError) as error:
            raise PlatformError(
                f"{self.settings_file} is damaged ({error}). Delete it; the next start creates it again"
            ) from error

    def read_or_choose(self) -> Settings:
        if self.settings_file.exists():
            return self.read()
        return self.write(Settings(ports=Ports(*free_ports(3))))

    def write(self, settings: Settings) -> Settings:
        """Store the settings atomically."""
        draft = self.settings_file.with_suffix(".draft")
        draft.touch(mode=0o600)
        draft.write_text(json.dumps(asdict(settings), indent=2))
        draft.replace(self.settings_file)
        return settings

    def replace_taken_ports(self, settings: Settings, idle: Iterable[str]) -> Settings:
        """Choose new ports for idle servers if another program uses theirs."""
        taken = [name for name in idle if not _is_free(getattr(settings.ports, name))]
        if not taken:
            return settings
        chosen = dict(zip(taken, free_ports(len(taken)), strict=True))
        return self.write(replace(settings, ports=replace(settings.ports, **chosen)))


def free_ports(count: int) -> list[int]:
    """Return different unused loopback ports."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [int(server.getsockname()[1]) for server in sockets]


def _is_free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
