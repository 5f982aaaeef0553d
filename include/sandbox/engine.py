"""Asking the Docker engine, before a run, whether it is there and has the sandbox image."""

import os
from typing import Any

from include.core.errors import EngineUnavailable, ImageMissing

DEFAULT_URL = "unix:///var/run/docker.sock"
TIMEOUT = 20
"""Seconds that the engine may take for an answer."""


def image_digest(image: str) -> str:
    """The image's id, which is a digest of all that it holds; pulled first where the engine does not have it.

    Raises:
        EngineUnavailable: no engine answers.
        ImageMissing: the engine does not have the image and cannot pull it.
    """
    import docker
    from docker.errors import APIError, DockerException, ImageNotFound
    from requests import RequestException

    url = os.environ.get("DOCKER_HOST", DEFAULT_URL)
    try:
        client: Any = docker.APIClient(base_url=url, version="auto", timeout=TIMEOUT)
        client.ping()
    except (DockerException, RequestException) as error:
        raise EngineUnavailable(
            f"no Docker engine answers at {url}: start one, or point DOCKER_HOST at one that runs ({error})"
        ) from error
    try:
        return str(client.inspect_image(image)["Id"])
    except ImageNotFound:
        pass
    try:
        client.pull(image)
        return str(client.inspect_image(image)["Id"])
    except (APIError, RequestException) as error:
        raise ImageMissing(
            f"the engine at {url} does not have the sandbox image {image} and cannot pull it: build it (`make up` "
            f"does), or set sandbox.image to one that it can pull ({error})"
        ) from error
