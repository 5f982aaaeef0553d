"""One DAG cleans up after all benchmarks; a benchmark that fails keeps no other from being done."""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from airflow.sdk.exceptions import AirflowFailException

from skillopt_airflow.benchmarks import LIST_VARIABLE
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import EngineUnavailable, StoreError
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.pipeline import cleanup_dag as cleaning
from skillopt_airflow.pipeline.cleanup_dag import (
    clean_up,
    cleanup_dag,
    compact_trajectories,
    drop_item_images,
    drop_unused_versions,
)
from skillopt_airflow.pipeline.tasks.airflow_connections import AirflowConnections
from skillopt_airflow.store.keys import CorpusKeys
from skillopt_airflow.training.prepare.benchmark_settings import VARIABLE
from tests.training.local_store import LocalStore

NO_ENGINE = "tcp://127.0.0.1:9"


def test_it_tells_every_connection_once() -> None:
    def config(conn_id: str | None) -> TrainConfig:
        return TrainConfig.from_layers({"alerts": {"conn_id": conn_id}})

    configs = {"a": config("x"), "b": config("x"), "c": config("y"), "d": config(None)}
    dag = cleanup_dag([*configs], configs)
    assert [teller.args for teller in dag.on_failure_callback] == [("x",), ("y",)]
    assert cleanup_dag(["a"], {"a": config(None)}).on_failure_callback is None


@pytest.mark.parametrize(
    "step", [clean_up.function, drop_unused_versions, lambda name: drop_item_images.function([name])]
)
def test_a_benchmark_that_cannot_be_read_fails_for_good_and_is_named(
    step: Callable[[str], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "benchmark.yaml").write_text("train: {sed: 1}")
    monkeypatch.setenv(LIST_VARIABLE, str(tmp_path / "broken"))
    with pytest.raises(AirflowFailException, match=r"broken/benchmark\.yaml: train\.sed"):
        step("broken")


@pytest.mark.parametrize(
    ("others", "dropped"),
    [
        ("{data: {corpus: b}, retention: {trajectory_days: 20}}", 1),
        ("{data: {corpus: b}, retention: {trajectory_days: 40}}", 0),
        ("{data: {corpus: b}}", 0),
        ("{train: {sed: 1}}", 0),
        ("{data: {corpus: b}, storage: {prefix: team/}}", 1),
    ],
)
def test_a_corpus_goes_when_no_benchmark_with_one_in_the_bucket_keeps_it(
    others: str, dropped: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"a": "{data: {corpus: a}, retention: {trajectory_days: 1}}", "b": others}
    for name, text in settings.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "benchmark.yaml").write_text(text)
    monkeypatch.setenv(LIST_VARIABLE, ",".join(str(tmp_path / name) for name in settings))
    store = LocalStore()
    store.clock = lambda: datetime.now(UTC) - timedelta(days=30)
    store.put_bytes(CorpusKeys("", "f" * 64).manifest, b"{}")
    monkeypatch.setattr(AirflowConnections, "object_store", lambda *_: store)
    assert compact_trajectories("a")["corpora_dropped"] == dropped


def test_images_of_items_are_removed_where_the_benchmarks_engines_are() -> None:
    own = TrainConfig.from_layers({"sandbox": {"queue": "engine"}})
    pods = TrainConfig.from_layers({"sandbox": {"engine": "kubernetes", "conn_id": "k"}})
    dag = cleanup_dag(["broken", "one", "two", "three"], {"one": own, "two": TrainConfig(), "three": pods})
    assert {name for name in dag.task_dict if not name.startswith("engines.")} == {
        f"benchmarks.{name}" for name in ("broken", "one", "two", "three")
    }
    assert not any(task.upstream_task_ids for task in dag.tasks)
    engines = [task for task in dag.tasks if task.task_id.startswith("engines.")]
    assert [(task.queue, task.op_args) for task in engines] == [("engine", (["one"],)), ("default", (["two"],))]
    assert {task.queue for task in dag.tasks if task not in engines} == {"default"}


def test_what_fails_keeps_the_other_part_from_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def fails(benchmark: str) -> JsonObject:
        raise StoreError("access denied")

    monkeypatch.setattr(cleaning, "compact_trajectories", fails)
    monkeypatch.setattr(cleaning, "drop_unused_versions", lambda name: done.append(name) or {})
    with pytest.raises(StoreError, match="access denied"):
        clean_up.function("searchqa")
    assert done == ["searchqa"]


def test_without_an_engine_there_are_no_images_to_remove_but_one_that_a_connection_names_has_to_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_HOST", NO_ENGINE)
    monkeypatch.setenv("AIRFLOW_CONN_FAR", json.dumps({"conn_type": "docker", "host": NO_ENGINE}))
    for sandbox in ("{}", "{engine: kubernetes, conn_id: nowhere}"):
        deployed(tmp_path, sandbox, monkeypatch)
        assert drop_item_images.function(["swebench"]) == []
    deployed(tmp_path, "{conn_id: far}", monkeypatch)
    with pytest.raises(EngineUnavailable, match=NO_ENGINE):
        drop_item_images.function(["swebench"])


def deployed(folder: Path, sandbox: str, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "deployment.yaml"
    path.write_text(f"defaults: {{sandbox: {sandbox}}}\n")
    monkeypatch.setenv(VARIABLE, str(path))
