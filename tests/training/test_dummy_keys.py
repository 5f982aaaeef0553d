"""A local server without accounts takes any key, and users enter the customary ones."""

import pytest

from skillopt_airflow.core.types import Split
from tests.gateway.foreign_server import ForeignServer, serving
from tests.training.served_training import ROLES, connect, training

OTHERS = ("k", "sk-no-key-required", "none", "dummy", "token", "not-needed", "ollama", "lm-studio", "x")
DUMMY_KEYS = ["EMPTY", *(pytest.param(key, marks=pytest.mark.nightly) for key in OTHERS)]


@pytest.mark.slow
@pytest.mark.parametrize("key", DUMMY_KEYS)
def test_a_step_against_another_server_with_a_customary_key(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(ForeignServer(key)) as server:
        for role in ROLES:
            connect(monkeypatch, role, server.base_url, key)
        trained = training()
        trained()
    run = trained.run
    assert trained.actions() == ["reject"]
    usage = run.usage.read("searchqa", run.account)
    assert {(row.call.http_status, row.call.attempts) for row in usage} == {(200, 1)}
    assert {row.call.stage for row in usage} >= {"preflight", "seed", "rollout", "reflect", "evaluate"}
    assert server.calls == len(usage)
    items = [*run.slices(run.timeline[1])[0]]
    rows = run.stored(Split.TRAIN, run.skill(0), 0, items)
    assert {row.trajectory.answer for row in rows.values()} == {"Paris"}
    assert len(rows) == len(items) == 8
