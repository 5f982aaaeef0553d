"""A registry of the platform's images, which gives them the digests that runs on Celery workers need."""

import json
import shutil
from collections.abc import Callable
from threading import Event

from local import image, services
from local.engine import install_packages
from local.environment import registry_address
from local.home import Home, Settings
from skillopt_airflow.core.errors import ImageMissing

NAME = "registry"
PACKAGE = PROGRAM = "docker-registry"
START_SECONDS = 60.0


def ensure(
    home: Home, settings: Settings, variables: dict[str, str], cancelled: Event, report: Callable[[str], None]
) -> None:
    """Have the registry run, on loopback, where engines need no certificate of it."""
    if shutil.which(PROGRAM) is None:
        report(f"installing {PACKAGE}")
        install_packages(PACKAGE)
    folder = home.root / "registry"
    folder.mkdir(exist_ok=True)
    configuration = folder / "config.yml"
    storage = {"filesystem": {"rootdirectory": str(folder)}, "delete": {"enabled": True}}
    # JSON is YAML.
    http = {"addr": registry_address(settings)}
    configuration.write_text(json.dumps({"version": 0.1, "storage": storage, "http": http}))
    service = services.Service(NAME, (PROGRAM, "serve", str(configuration)), variables | http)
    url = f"http://{registry_address(settings)}/v2/"
    services.ensure(home, service, lambda: services.serves(url), cancelled, START_SECONDS)


def push(settings: Settings, docker_host: str) -> None:
    """Push every image of the project's that the engine has and that sandboxes run in or beside."""
    with image.opened_engine(docker_host, "an image could not be pushed") as client:
        for recipe in (recipe for recipe in image.RECIPES.values() if recipe.follows):
            for built in client.images.list(name=recipe.image):
                name, _, tag = f"{registry_address(settings)}/{recipe.image}".rpartition(":")
                built.tag(name, tag)
                for event in client.images.push(name, tag, stream=True, decode=True):
                    if "error" in event:
                        raise ImageMissing(f"{name}:{tag} could not be pushed: {event['error']}")
