"""The offline stand-in as a service; it is no language model."""

import sys
from pathlib import Path
from threading import Event

from local import services
from local.environment import model_url
from local.home import PROJECT, Home, Settings
from skillopt_airflow import benchmarks

NAME = "model"
START_SECONDS = 60.0
STANDIN = PROJECT / "local" / "standin"


def ensure(home: Home, settings: Settings, variables: dict[str, str], cancelled: Event) -> None:
    """Have the stand-in run.

    Raises:
        PlatformError: it does not start; the text has the last lines of its log.
    """
    command = (sys.executable, "-m", "local.standin", "--port", str(settings.ports.model))
    service = services.Service(NAME, command, variables, (services.LOCK, services.PACKAGE, STANDIN, *_subjects()))
    services.ensure(home, service, lambda: services.serves(f"{model_url(settings)}/models"), cancelled, START_SECONDS)


def _subjects() -> list[Path]:
    """Return the files of the benchmarks that teach the stand-in their wording, and those that these may import."""
    folders = [benchmarks.folder(name) for name in benchmarks.names()]
    return [file for folder in folders if (folder / "standin.py").is_file() for file in sorted(folder.glob("*.py"))]
