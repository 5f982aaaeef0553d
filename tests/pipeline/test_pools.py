import json
import logging
from pathlib import Path
from typing import Any

import pytest

from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.pipeline import pool_listener
from skillopt_airflow.pipeline.pools import check_pools
from skillopt_airflow.training.deployment_file import VARIABLE as DEPLOYMENT

DEFAULTS = """
defaults:
  sandbox: {pool: provider}
  model: {optimizer_pool: writers, pool_slot: SLOT}
"""


def known(monkeypatch: pytest.MonkeyPatch, **pools: int) -> None:
    """Play the Variable, which Airflow also takes from the environment."""
    monkeypatch.setenv(f"AIRFLOW_VAR_{pool_listener.VARIABLE.upper()}", json.dumps({"default_pool": 128, **pools}))


@pytest.fixture
def slot_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Write an administrator's file in which all tasks are in pools."""

    def write(slot: str) -> None:
        (tmp_path / "deployment.yaml").write_text(DEFAULTS.replace("SLOT", slot))
        monkeypatch.setenv(DEPLOYMENT, str(tmp_path / "deployment.yaml"))

    return write


def test_a_run_in_airflows_own_pool_asks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    known(monkeypatch)
    check_pools("searchqa")


@pytest.mark.parametrize(
    ("slot", "pools", "refusal"),
    [
        ("task", {"provider": 1, "writers": 1}, ""),
        ("call", {"provider": 8, "writers": 16}, ""),
        ("call", {"provider": -1, "writers": -1}, ""),
        ("task", {"writers": 1}, r"^sandbox\.pool = provider: Airflow has no such pool.*`airflow pools set provider "),
        ("task", {"provider": 3}, r"^model\.optimizer_pool = writers: Airflow has no such pool"),
        ("call", {"writers": 16}, r"SLOTS being at least 8"),
        ("call", {"provider": 7, "writers": 16}, r"^sandbox\.pool = provider: the pool has 7 slots .* takes 8"),
        ("call", {"provider": 8, "writers": 15}, r"^model\.optimizer_pool = writers: the pool has 15 .* takes 16"),
        ("task", {"provider": 0, "writers": 1}, r"^sandbox\.pool = provider: the pool has 0 slots .* takes 1"),
    ],
)
def test_pools_in_which_tasks_would_wait_for_ever(
    monkeypatch: pytest.MonkeyPatch, slot_of: Any, slot: str, pools: dict[str, int], refusal: str
) -> None:
    slot_of(slot)
    known(monkeypatch, **pools)
    if not refusal:
        check_pools("searchqa")
        return
    with pytest.raises(ConfigError, match=refusal):
        check_pools("searchqa")


def test_where_nobody_knows_the_pools_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, slot_of: Any, caplog: pytest.LogCaptureFixture
) -> None:
    slot_of("task")
    monkeypatch.setenv(f"AIRFLOW_VAR_{pool_listener.VARIABLE.upper()}", "null")
    with caplog.at_level(logging.WARNING):
        check_pools("searchqa")
    assert "Whether Airflow has the pools provider, writers is not known" in caplog.text
