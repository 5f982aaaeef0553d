from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.gateway.dialect_server import Dialect, DialectServer, serving

Serve = Callable[[Dialect], DialectServer]


@pytest.fixture
def provider() -> Iterator[Serve]:
    """Starts servers that speak a dialect."""
    with ExitStack() as servers:
        yield lambda dialect: servers.enter_context(serving(dialect))
