"""Repositories on the real platform: the sample in each harness that works in them, and one of a user's own."""

import itertools
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from command_blocks import PROJECT, blocks, typed
from local_repository import committed, git

from skillopt_airflow.core.run_history import History
from skillopt_airflow.store.keys import RunKeys, run_name
from skillopt_airflow.store.objects import ObjectStore

pytestmark = [pytest.mark.platform, pytest.mark.nightly]

BENCHMARK = "swebench"
ONE_STEP = {
    "train.num_epochs": 1,
    "train.steps_per_epoch": 1,
    "train.preflight": False,
    "train.batch_size": 3,
    "evaluation.val_limit": 3,
    "evaluation.eval_test": False,
}
CLIS = {"codex": ONE_STEP, "claude_code": ONE_STEP} if os.environ.get("SKILLOPT_TEST_PROVIDER") else {}
"""Agents that take minutes for a step; they repair repositories in tests/rollout/test_agent_clis.py, too."""
TESTED = {
    "train.num_epochs": 1,
    "train.steps_per_epoch": 1,
    "train.preflight": False,
    # Each item has a container for its repository, and its tests run twice in another one.
    "evaluation.val_limit": 3,
    "evaluation.test_limit": 3,
    "publishing.gate_policy": "paper",
}
SAMPLES: Mapping[str, Mapping[str, Any]] = {"tools": TESTED, **CLIS}
"""What each harness trains on the sample, beside its name."""
TEST = """import unittest

from units import {name}


class {title}Test(unittest.TestCase):
    def test_it(self):
        self.assertEqual({name}(3), {result})
"""


def commits(folder: Path) -> list[str]:
    """A repository whose last commits each repair one function and bring its test."""
    folder.mkdir()
    git(folder, "init", "-q")
    sources = {
        f"times{factor}": f"def times{factor}(number):\n    return number + {factor}\n" for factor in range(2, 5)
    }
    made = [committed(folder, "base", units="\n\n".join(sources.values()), tests____init__="")]
    for name, text in sources.items():
        sources[name] = text.replace("+", "*")
        test = TEST.format(name=name, title=name.title(), result=3 * int(name[-1]))
        files = {"units": "\n\n".join(sources.values()), f"tests__test_{name}": test}
        made.append(committed(folder, f"{name}() adds", **files))
    return made


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
    print(harness, history.seed_val_score, history.best_val_score, history.test)
    assert history.seed_val_score == 0.0
    assert history.best_val_score > 0.0
    assert harness != "tools" or history.test["best"].score > history.test["seed"].score


def test_commits_become_instances_and_a_training(platform: Any, tmp_path: Path) -> None:
    written, trained = blocks(PROJECT / "benchmarks" / "swebench" / "README.md")
    make, splits = written.commands
    assert make == "make instance REPO=. BASE=HEAD~1 FIX=HEAD OUT=instances"
    made = commits(tmp_path / "units")
    for base, fix in itertools.pairwise(made):
        chosen = make.replace("REPO=.", f"REPO={tmp_path}/units").replace("HEAD~1", base).replace("HEAD", fix)
        typed(chosen.replace("OUT=instances", f"OUT={tmp_path}/instances"), PROJECT)
    typed(
        splits.replace(".local", f"{PROJECT}/.local", 1).replace("instances", f"{tmp_path}/instances"),
        PROJECT,
    )
    (tmp_path / ".local").symlink_to(platform.home.root)
    name = f"repositories-{time.time_ns()}"
    for dag in ("", "_epoch"):
        platform.api.wait_for_dag(f"train_swebench{dag}")
    typed(f"{trained.text.rstrip()} --run-id {name}", tmp_path)
    assert platform.api.wait("train_swebench", name, seconds=1500) == "success"
    history = ObjectStore(platform.s3, "skillopt").get_model(RunKeys("", "swebench", run_name(name)).history, History)
    # The stand-in knows no other repositories than the sample's, and hands in nothing.
    assert (history.seed_val_score, history.test["seed"].score) == (0.0, 0.0)
