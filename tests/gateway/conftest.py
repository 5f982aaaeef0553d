from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from local.served import served
from skillopt_airflow.gateway import fallbacks
from tests.gateway.dialect_server import Dialect, DialectServer
from tests.gateway.gateway_rig import Rig, rigs

Serve = Callable[[Dialect], DialectServer]


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fallbacks, "FIRST_PAUSE", 0.02)


@pytest.fixture
def provider() -> Iterator[Serve]:
    """Starts servers that speak a dialect."""
    with ExitStack() as servers:
        yield lambda dialect: servers.enter_context(served(DialectServer(dialect)))


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    """Makes gateways, each with a scripted provider behind it."""
    with rigs(tmp_path) as make:
        yield make
