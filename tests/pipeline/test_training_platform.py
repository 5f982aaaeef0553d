"""Trainings through the real platform: scheduler, PostgreSQL, S3 over HTTP, containers."""

import hashlib
import json
import re
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import docker
import duckdb
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from bench.real_data import ABSENT, SEARCHQA
from skillopt_airflow.core.timeline import Moment
from skillopt_airflow.core.types import DATA_SPLITS, Split
from skillopt_airflow.store.artifacts import Alias, SkillManifest
from skillopt_airflow.store.keys import ArtifactKeys, trajectories_of
from tests.pipeline.trained_run import (
    DAG,
    TrainedRun,
    executions,
    set_paused,
    trajectories,
)

pytestmark = pytest.mark.platform

PROJECT = Path(__file__).parents[2]
BAD_SETTINGS = (
    (
        "unknown-key",
        {"optimizer.learnig_rate": 2},
        "optimizer.learnig_rate: no such key; allowed here: learning_rate",
    ),
    ("no-bucket", {"storage.bucket": "skillopt-missing"}, "bucket skillopt-missing does not exist"),
)
"""All that can be wrong with settings is in tests/pipeline/test_prepare.py."""
BAD_DATA = (("no-reference", {"answers": []}, "answers"),)
"""All that can be wrong with records is in tests/pipeline/test_broken_data.py."""


@pytest.fixture(scope="module")
def engine(platform: Any) -> Iterator[docker.DockerClient]:
    client = docker.DockerClient(base_url=platform.environment["DOCKER_HOST"])
    yield client
    client.close()


@pytest.fixture(scope="module")
def event_log(engine: docker.DockerClient) -> Iterator[list[dict[str, Any]]]:
    """The engine's own log of containers that come and end, as it is written: an engine keeps the last 256 only.

    A busy engine says that a container has started when its first item has begun already.
    """
    stream = engine.events(filters={"type": "container", "event": ["create", "die"]}, decode=True)
    events: list[dict[str, Any]] = []
    reader = threading.Thread(target=lambda: events.extend(stream), daemon=True)
    reader.start()
    yield events
    stream.close()
    reader.join(10)


@pytest.fixture(scope="module")
def watched(platform: Any, event_log: list[dict[str, Any]]) -> TrainedRun:
    """A run of two epochs, each of whose containers is in the engine's log."""
    name = f"watched-{time.time_ns()}"
    overrides = {"train.num_epochs": 2, "train.steps_per_epoch": 2, "storage.prefix": f"{name}/"}
    return TrainedRun.trigger(platform, name, overrides).wait()


@pytest.fixture(scope="module")
def trained(plain_started: TrainedRun, refused: dict[str, TrainedRun], real_started: TrainedRun) -> TrainedRun:
    """The run to which nothing happens; the refused ones fail beside it, and the real items are trained on."""
    return plain_started.wait()


@pytest.fixture(scope="module")
def real_started(platform: Any) -> TrainedRun:
    name = f"real-items-{time.time_ns()}"
    if not SEARCHQA.is_file():
        return TrainedRun(platform, name)
    real = {"data.uri": str(SEARCHQA), "data.split_mode": "ratio", "train.num_epochs": 1, "evaluation.test_limit": 100}
    return TrainedRun.trigger(platform, name, real | {"train.preflight": False, "storage.prefix": f"{name}/"})


@pytest.fixture(scope="module")
def refused(platform: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, TrainedRun]:
    """Every run that its first task refuses, by name; they run at the same time."""
    asked = {name: overrides for name, overrides, _ in BAD_SETTINGS}
    asked |= {name: sample_with_bad_data(tmp_path_factory.mktemp(name), spoil) for name, spoil, _ in BAD_DATA}
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
    assert history.best_val_score > history.seed_val_score
    assert history.test["best"].hard > history.test["seed"].hard + 0.1
    assert all(score.coverage == 1.0 for score in history.test.values())
    assert history.published is not None


def test_the_scheduler_ran_it_as_a_dag_run(trained: TrainedRun) -> None:
    run = trained.platform.api.run(DAG, trained.run_id)
    assert run["state"] == "success"
    assert run["triggered_by"] == "rest_api"
    assert {row["state"] for row in trained.task_instances()} <= {"success", "skipped"}


def test_the_preflight_shows_what_it_found(trained: TrainedRun) -> None:
    (row,) = [row for row in trained.task_instances() if row["task_id"] == "preflight"]
    log = "\n".join(trained.log(row))
    assert re.search(r"target answered in \d+\.\d s, \d+ \+ \d+ tokens \(ok\)", log)
    assert re.search(r"optimizer answered in \d+\.\d s, \d+ \+ \d+ tokens", log)
    assert "buckets skillopt and skillopt-artifacts take conditional writes" in log


@pytest.mark.nightly
def test_every_rollout_ran_in_a_container(watched: TrainedRun, event_log: list[dict[str, Any]]) -> None:
    """By the engine's own log: each row lies within the life of a container of this run."""
    lives: dict[str, list[float]] = {}
    for event in event_log:
        if event["Actor"]["Attributes"].get("skillopt.run") == watched.keys.run:
            lives.setdefault(event["id"], []).append(event["timeNano"] / 1e9)
    rows = trajectories(watched)
    assert len(rows) >= 4 * 40
    # A batch of each of four steps, and the seed on the selection split.
    assert len(lives) >= 5
    for started, seconds in zip(rows["started"], rows["seconds"], strict=True):
        begin = started.timestamp()
        assert any(life[0] <= begin and begin + seconds <= life[-1] for life in lives.values())


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


def test_pandas_and_duckdb_read_the_trajectories(trained: TrainedRun, tmp_path: Path) -> None:
    rows = trajectories(trained)
    assert set(rows["status"]) == {"ok"}
    for key in trained.store.list_keys(f"{trained.prefix}trajectories/"):
        path = tmp_path / key.removeprefix(trained.prefix)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(trained.store.get_bytes(key))
    counted = duckdb.sql(
        f"select split, count(*), avg(hard) from read_parquet('{tmp_path}/trajectories/**/*.parquet', "
        "hive_partitioning = true) group by split order by split"
    ).fetchall()
    assert [split for split, *_ in counted] == ["test", "train", "val"]
    assert sum(count for _, count, _ in counted) == len(rows)


def test_the_published_skill_is_the_one_that_its_manifest_describes(trained: TrainedRun) -> None:
    published = trained.history.published
    assert published is not None
    keys = ArtifactKeys(trained.prefix, "searchqa", trained.history.target)
    version = keys.version(published.version)
    manifest = trained.artifacts.get_model(version.manifest, SkillManifest)
    skill = trained.artifacts.get_bytes(version.best_skill)
    assert manifest.sha256 == hashlib.sha256(skill).hexdigest() == published.sha256
    assert trained.artifacts.get_model(keys.champion, Alias).version == published.version
    assert skill == trained.store.get_bytes(trained.keys.best_skill)


def test_no_task_pays_for_a_rollout_twice(trained: TrainedRun) -> None:
    assert executions(trained) == {1}


def test_cleaning_up_leaves_one_part_a_partition_and_every_row(platform: Any, trained: TrainedRun) -> None:
    # The DAG cleans the benchmark's usual place, where no test of this module trains.
    for key in trained.store.list_keys(f"{trained.prefix}trajectories/"):
        trained.store.put_bytes(key.removeprefix(trained.prefix), trained.store.get_bytes(key))
    usual = TrainedRun(platform, trained.run_id)
    place = trajectories_of("", "searchqa")
    before, parts = trajectories(usual), usual.store.list_keys(place)
    platform.api.wait_for_dag("cleanup")
    set_paused(platform, "cleanup", paused=False)
    try:
        run_id = platform.api.trigger("cleanup")
        assert platform.api.wait("cleanup", run_id, seconds=120) == "success"
    finally:
        set_paused(platform, "cleanup", paused=True)
    after = usual.store.list_keys(place)
    partitions = {part.rpartition("/")[0] for part in parts}
    assert len(parts) > len(partitions)
    assert sorted(part.rpartition("/")[0] for part in after) == sorted(partitions)
    columns = ["split", "item_id", "skill_sha256", "draw", "stored", "hard"]
    assert_frame_equal(in_order(trajectories(usual)[columns]), in_order(before[columns]))


def in_order(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.sort_values(list(rows.columns)).reset_index(drop=True)


@pytest.mark.parametrize(("name", "sentence"), [(name, sentence) for name, _, sentence in BAD_SETTINGS])
def test_bad_settings_fail_the_first_task_and_leave_nothing(
    refused: dict[str, TrainedRun], name: str, sentence: str
) -> None:
    failed_at_prepare(refused[name], sentence)


@pytest.mark.parametrize(("name", "sentence"), [(name, sentence) for name, _, sentence in BAD_DATA])
def test_bad_data_fails_the_first_task_and_leaves_only_what_is_wrong(
    refused: dict[str, TrainedRun], name: str, sentence: str
) -> None:
    run = refused[name]
    failed_at_prepare(run, sentence, [run.keys.quality_page, run.keys.quality])


def test_without_an_engine_the_preparation_says_so_and_leaves_nothing(platform: Any) -> None:
    code = (
        "from skillopt_airflow.pipeline import params; from skillopt_airflow.pipeline.triggered import new_run; "
        "from skillopt_airflow.training.benchmark_settings import benchmark_config; "
        "from skillopt_airflow.training.preparation import prepare_training; "
        "form = {name: field.value for name, field in params.form(benchmark_config('searchqa')).items()}; "
        "prepare_training(*new_run('searchqa', 'no-engine', form), 1024)"
    )
    environment = platform.environment | {"DOCKER_HOST": "unix:///nowhere/docker.sock"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, cwd=PROJECT, capture_output=True, text=True, timeout=400
    )
    assert "EngineUnavailable: no Docker engine answers at unix:///nowhere/docker.sock" in done.stderr
    assert not TrainedRun(platform, "no-engine").store.list_keys(TrainedRun(platform, "no-engine").keys.folder)


@pytest.mark.skipif(not SEARCHQA.is_file(), reason=ABSENT)
def test_real_searchqa_items_train_through_the_same_dag(real_started: TrainedRun) -> None:
    history = real_started.wait().history
    assert [step.step for step in history.steps] == [1, 2]
    assert history.test["seed"].hard < 0.15
    assert history.test["best"].hard >= 0.25
    assert any(step.action == "reject" for step in history.steps)


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


def failed_at_prepare(run: TrainedRun, sentence: str, left: Sequence[str] = ()) -> None:
    assert run.platform.api.wait(DAG, run.run_id, seconds=300) == "failed"
    [failed] = [row for row in run.task_instances() if row["state"] == "failed"]
    assert (failed["task_id"], failed["try_number"]) == ("prepare", 1)
    assert any(sentence in line for line in run.log(failed)), run.log(failed)
    # What is wrong with the data, if they are why.
    assert run.store.list_keys(run.keys.folder) == list(left)
