from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from skillopt_airflow.gateway import retries
from tests.gateway.gateway_rig import Rig, rigs
from tests.gateway.scripted_provider import Answer, ScriptedProvider

Serve = Callable[[Answer], ScriptedProvider]


@pytest.fixture(autouse=True)
def _short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "FIRST_PAUSE", 0.02)


@pytest.fixture
def provider() -> Iterator[Serve]:
    """Starts servers that speak a dialect."""
    with ExitStack() as servers:
        yield lambda dialect: servers.enter_context(ScriptedProvider(dialect))


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    """Makes gateways, each with a scripted provider behind it."""
    with rigs(tmp_path) as make:
        yield make
