"""Trainings through the real platform: scheduler, PostgreSQL, S3 over HTTP, containers."""

import json
import re
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.types import DATA_SPLITS, Split
from skillopt_airflow.store.keys import ArtifactKeys, trajectories_of
from tests.pipeline.trained_run import DAG, TrainedRun, executions, set_paused, trajectories

pytestmark = pytest.mark.platform

PROJECT = Path(__file__).parents[2]
REFUSED = {"no-bucket": "bucket skillopt-missing does not exist", "no-reference": "answers"}
"""All that can be wrong is in tests/pipeline/test_prepare.py, and with records in test_broken_data.py there."""


@pytest.fixture(scope="module")
def trained(plain_started: TrainedRun, refused: dict[str, TrainedRun]) -> TrainedRun:
    """The run to which nothing happens; the refused ones fail beside it."""
    return plain_started.wait()


@pytest.fixture(scope="module")
def refused(platform: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, TrainedRun]:
    """Every run that its first task refuses, by name; they run at the same time."""
    bad_data = sample_with_bad_data(tmp_path_factory.mktemp("no-reference"), {"answers": []})
    asked = {"no-bucket": {"storage.bucket": "skillopt-missing"}, "no-reference": bad_data}
    return {
        name: TrainedRun.trigger(platform, f"bad-{name}-{time.time_ns()}", overrides)
        for name, overrides in asked.items()
    }


def test_a_training_accepts_rejects_and_beats_its_seed(trained: TrainedRun) -> None:
    history = trained.history
    assert len(history.steps) == 2
    actions = Counter(step.action for step in history.steps)
    assert actions["accept_new_best"] >= 1
    assert actions["reject"] >= 1
    assert history.best.score > history.seed.score
    assert history.test["best"].hard > history.test["seed"].hard + 0.1
    assert all(score.coverage == 1.0 for score in history.test.values())
    assert history.published is not None
    run = trained.platform.api.run(DAG, trained.run_id)
    assert (run["state"], run["triggered_by"]) == ("success", "rest_api")
    assert {row["state"] for row in trained.task_instances()} <= {"success", "skipped"}
    # No task pays for a rollout twice.
    assert executions(trained) == {1}
    version = ArtifactKeys(trained.prefix, "searchqa", history.target).version(history.published.version)
    assert trained.artifacts.get_bytes(version.best_skill) == trained.store.get_bytes(trained.keys.best_skill)


def test_the_preflight_shows_what_it_found(trained: TrainedRun) -> None:
    (row,) = [row for row in trained.task_instances() if row["task_id"] == "preflight"]
    log = "\n".join(trained.log(row))
    assert re.search(r"target answered in \d+\.\d s, \d+ \+ \d+ tokens \(ok\)", log)
    assert re.search(r"optimizer answered in \d+\.\d s, \d+ \+ \d+ tokens", log)
    assert "buckets skillopt and skillopt-artifacts take conditional writes" in log


def test_the_keys_are_those_that_the_readme_lists(trained: TrainedRun) -> None:
    keys, stored = trained.keys, set(trained.store.list_keys(trained.prefix))
    expected = [keys.config, keys.data_manifest, keys.quality, keys.history, keys.runtime_state, keys.best_skill]
    expected += [keys.report, keys.quality_page, keys.skill(0), *(keys.items(split) for split in DATA_SPLITS)]
    for number in range(1, 3):
        step = keys.moment(Moment(kind="step", epoch=1, step=number))
        expected += [step.merged_patch, step.ranked_edits, step.candidate_skill, step.edit_apply_report]
        expected += [step.gate, step.state]
    assert set(expected) <= stored
    assert any(key.startswith(f"{trained.prefix}usage/benchmark=searchqa/run=") for key in stored)


@pytest.mark.nightly
def test_cleaning_up_leaves_the_parts_of_the_last_day_and_every_row(platform: Any, trained: TrainedRun) -> None:
    # The DAG cleans the benchmark's usual place, where no test of this module trains.
    for key in trained.store.list_keys(f"{trained.prefix}trajectories/"):
        trained.store.put_bytes(key.removeprefix(trained.prefix), trained.store.get_bytes(key))
    usual = TrainedRun(platform, trained.run_id)
    place = trajectories_of("", "searchqa")
    before, parts = trajectories(usual), usual.store.list_keys(place)
    platform.api.wait_for_dag("skillopt_cleanup")
    set_paused(platform, "skillopt_cleanup", paused=False)
    try:
        run_id = platform.api.trigger("skillopt_cleanup")
        assert platform.api.wait("skillopt_cleanup", run_id, seconds=120) == "success"
    finally:
        set_paused(platform, "skillopt_cleanup", paused=True)
    assert parts
    assert parts == usual.store.list_keys(place)
    columns = ["split", "item_id", "skill_sha256", "sample", "stored", "hard"]
    assert_frame_equal(in_order(trajectories(usual)[columns]), in_order(before[columns]))


def in_order(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.sort_values(list(rows.columns)).reset_index(drop=True)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_fails_the_first_task_and_leaves_only_what_is_wrong(
    refused: dict[str, TrainedRun], name: str
) -> None:
    run = refused[name]
    assert run.platform.api.wait(DAG, run.run_id, seconds=300) == "failed"
    [failed] = [row for row in run.task_instances() if row["state"] == "failed"]
    assert (failed["task_id"], failed["try_number"]) == ("prepare", 1)
    assert any(REFUSED[name] in line for line in run.log(failed)), run.log(failed)
    left = [run.keys.quality_page, run.keys.quality] if name == "no-reference" else []
    assert run.store.list_keys(run.keys.folder) == left


def sample_with_bad_data(folder: Path, spoil: dict[str, Any]) -> dict[str, Any]:
    """Write a little of the sample, in which two items are spoiled; the overrides that name it."""
    sample = PROJECT / "benchmarks" / "searchqa" / "sample"
    for split in DATA_SPLITS:
        rows = json.loads((sample / split / "items.json").read_text())[:4]
        if split is Split.VAL:
            rows[1:3] = [row | spoil for row in rows[1:3]]
        (folder / split).mkdir()
        (folder / split / "items.json").write_text(json.dumps(rows))
    return {"data.uri": str(folder), "data.split_mode": "split_dir"}
