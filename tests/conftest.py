from collections.abc import Iterator
from pathlib import Path

import pytest
from platform_control import PROJECT, RunningPlatform, control


@pytest.fixture(scope="session")
def docker_host() -> Iterator[str]:
    """An engine that has the sandbox image; one that the tests had to start ends with them."""
    from local import engine, image

    home = image.ROOT / ".local"
    own = engine.OwnEngine(home)
    ours_ran = engine.answers(own.url)
    url = engine.ensure(home, print)
    image.ensure(home, url, print)
    yield url
    if url == own.url and not ours_ran:
        engine.stop(home)


@pytest.fixture(scope="session")
def gateway_docker_host(docker_host: str) -> str:
    """The engine, which then has the gateway's image too, for engines from where the worker cannot be reached."""
    from local import image

    image.ensure(image.ROOT / ".local", docker_host, print, ["gateway"])
    return docker_host


@pytest.fixture(scope="session")
def cli_docker_host(docker_host: str) -> str:
    """The engine, which then has the images of the agent CLIs too."""
    from local import image

    image.ensure(image.ROOT / ".local", docker_host, print, ["codex", "claude_code"])
    return docker_host


@pytest.fixture(scope="session")
def standin_url() -> Iterator[str]:
    """The base URL, /v1 included, of a stand-in that serves as long as the tests run."""
    from local.standin.server import StandInServer
    from tests.served import served

    with served(StandInServer("127.0.0.1", 0)) as server:
        yield server.base_url


@pytest.fixture(scope="session")
def platform(request: pytest.FixtureRequest, docker_host: str) -> Iterator[RunningPlatform]:
    """One platform for the whole session, in a home of its own; `@pytest.mark.parametrize` may name another home."""
    home = Path(getattr(request, "param", PROJECT / ".local" / "test"))
    control(home, "up", DOCKER_HOST=docker_host)
    running = RunningPlatform(home)
    yield running
    running.api.close()
    running.s3.close()
    control(home, "down", DOCKER_HOST=docker_host)
