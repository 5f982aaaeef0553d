"""Repositories on the real platform: the sample in each harness that works in them."""

import os
import time
from collections.abc import Mapping
from typing import Any

import pytest

from skillopt_airflow.core.run.history import History
from skillopt_airflow.store.keys import RunKeys, run_name
from skillopt_airflow.store.objects import ObjectStore

pytestmark = [pytest.mark.platform, pytest.mark.nightly]

BENCHMARK = "swebench"
ONE_STEP = {
    "train.num_epochs": 1,
    "train.steps_per_epoch": 1,
    "train.batch_size": 3,
    "evaluation.val_limit": 3,
    "evaluation.eval_test": False,
}
CLIS = {"codex": ONE_STEP, "claude_code": ONE_STEP} if os.environ.get("SKILLOPT_TEST_PROVIDER") else {}
"""Agents that take minutes for a step; they repair repositories in tests/rollout/harnesses/test_agent_clis.py, too."""
TESTED = {
    "train.num_epochs": 1,
    "train.steps_per_epoch": 1,
    # Each item has a container for its repository, and its tests run twice in another one.
    "evaluation.val_limit": 3,
    "evaluation.test_limit": 3,
    "publishing.gate_policy": "strict",
}
SAMPLES: Mapping[str, Mapping[str, Any]] = {"tools": TESTED, **CLIS}
"""What each harness trains on the sample, beside its name."""


@pytest.fixture(scope="module")
def samples(platform: Any, cli_docker_host: str) -> Mapping[str, RunKeys]:
    """Trainings on the sample under way, by their harness."""
    for dag in ("", "_epoch"):
        platform.api.wait_for_dag(f"train_{BENCHMARK}{dag}")
    made = {}
    for harness, overrides in SAMPLES.items():
        name = f"{harness}-{time.time_ns()}"
        chosen = {**overrides, "model.harness": harness, "storage.prefix": f"{name}/"}
        platform.api.trigger(f"train_{BENCHMARK}", {"overrides": chosen}, name)
        made[harness] = RunKeys(f"{name}/", BENCHMARK, run_name(name))
    return made


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("harness", SAMPLES)
def test_the_sample_trains_in_every_harness_that_works_in_a_repository(
    platform: Any, samples: Mapping[str, RunKeys], harness: str
) -> None:
    keys = samples[harness]
    assert platform.api.wait(f"train_{BENCHMARK}", keys.prefix.strip("/"), seconds=1500) == "success"
    history = ObjectStore(platform.s3, "skillopt").get_model(keys.history, History)
    print(harness, history.seed.score, history.best.score, history.test)
    # Some repairs pass the tests and some do not, and every one was judged.
    assert 0.0 < history.test["best"].score < 1.0
    assert {score.coverage for score in history.test.values()} == {1.0}
