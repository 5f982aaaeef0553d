from collections.abc import Iterator

import pytest


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
