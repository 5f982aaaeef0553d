"""The offline stand-in as a service; it is no language model."""

import sys
from threading import Event

from local import services
from local.environment import model_url
from local.home import PROJECT, Home, Settings

NAME = "model"
START_SECONDS = 60.0
STANDIN = PROJECT / "local" / "standin"


def ensure(home: Home, settings: Settings, variables: dict[str, str], cancelled: Event) -> None:
    """Have the stand-in run."""
    command = (sys.executable, "-m", "local.standin", "--port", str(settings.ports.model))
    service = services.Service(NAME, command, variables, (services.LOCK, services.PACKAGE, STANDIN))
    services.ensure(home, service, lambda: services.serves(f"{model_url(settings)}/models"), cancelled, START_SECONDS)
