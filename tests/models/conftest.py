import threading
from collections.abc import Iterator

import pytest

from include.models.standin.server import StandInServer


@pytest.fixture(scope="session")
def standin_url() -> Iterator[str]:
    """The base URL, /v1 included, of a stand-in that serves as long as the tests run."""
    with StandInServer("127.0.0.1", 0) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        yield server.base_url
        server.shutdown()
        thread.join()
