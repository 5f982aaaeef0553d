from pathlib import Path
from typing import Any, cast

import pytest
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import Asset

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.pipeline import all_dags
from skillopt_airflow.pipeline.all_dags import FACTORIES, check_benchmarks, dags, readable_config
from skillopt_airflow.pipeline.night_dag import regate_dag
from skillopt_airflow.pipeline.tasks.dag_ids import PREFIX_VARIABLE, train_dag_id
from skillopt_airflow.pipeline.training import train_dag
from skillopt_airflow.training.prepare.benchmark_settings import VARIABLE
from tests.pipeline.own_airflow import printed
from tests.training.in_process import PROJECT

TASKS_DAG = "_AIRFLOW_PARSING_CONTEXT_DAG_ID"
"""The variable in which Airflow tells a DAG file what it is read for."""


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a benchmark that is listed beside one of ours."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "adapter.py").write_text("BENCHMARK = 'mine'\n")
    (folder / "benchmark.yaml").write_text("")
    monkeypatch.setenv(benchmarks.LIST_VARIABLE, f"searchqa,{folder}")
    return folder


def ids_of(*names: str) -> set[str]:
    return {dag_id(name) for name in names for dag_id in FACTORIES}


@pytest.mark.nightly
def test_no_task_carries_a_copy_of_its_dags_form() -> None:
    made = dags().values()
    assert any(dag.params for dag in made)
    assert not [task.task_id for dag in made for task in dag.tasks if set(task.params) & set(dag.params)]


@pytest.mark.parametrize(("regate", "asset"), [({}, None), ({"train_on_decline": True}, "skillopt_searchqa_decline")])
def test_a_training_follows_what_the_nights_tell(regate: dict[str, Any], asset: str | None) -> None:
    config = TrainConfig.from_layers({"regate": regate})
    schedule = train_dag("searchqa", config).schedule
    assert [one.name for one in cast("list[Asset]", schedule or [])] == ([] if asset is None else [asset])
    outlets = [outlet for task in regate_dag("searchqa", config).tasks for outlet in task.outlets]
    assert "skillopt_searchqa_decline" in {outlet.name for outlet in outlets}


@pytest.mark.nightly
def test_the_process_of_a_task_builds_its_dag_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = dags()
    for dag_id, dag in everything.items():
        monkeypatch.setenv(TASKS_DAG, dag_id)
        alone = dags()
        assert list(alone) == [dag_id]
        assert alone[dag_id].task_dict.keys() == dag.task_dict.keys()
    monkeypatch.setenv(TASKS_DAG, "of_another_file")
    assert dags() == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [("train: {sed: 1}", "train.sed: no such key"), ("regate: {schedule: at night}", "regate.schedule = at night")],
)
def test_a_bad_benchmark_leaves_the_others_and_is_named(
    mine: Path, text: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_benchmarks()
    assert dags().keys() == ids_of("searchqa", "mine") | {"skillopt_cleanup"}
    (mine / "benchmark.yaml").write_text(text)
    left = dags()
    assert left.keys() == ids_of("searchqa") | {"skillopt_cleanup"}
    assert "benchmarks.mine" in left["skillopt_cleanup"].task_dict
    with pytest.raises(ConfigError) as raised:
        check_benchmarks()
    assert str(raised.value).startswith(f"benchmark mine: {mine}/benchmark.yaml: {said}")
    monkeypatch.setenv(TASKS_DAG, "train_searchqa")
    assert list(dags()) == ["train_searchqa"]
    monkeypatch.setenv(TASKS_DAG, "train_mine")
    with pytest.raises(ConfigError, match=r"mine/benchmark\.yaml"):
        dags()


def test_a_schedule_that_is_none_is_named_where_it_is_set(
    mine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    defaults = tmp_path / "deployment.yaml"
    defaults.write_text("defaults: {regate: {schedule: 0 0 32 2 *}}")
    monkeypatch.setenv(VARIABLE, str(defaults))
    with pytest.raises(ConfigError, match=rf"^{VARIABLE}: {defaults}: defaults: regate.schedule = 0 0 32 2 \*"):
        readable_config("mine")


def test_every_bad_benchmark_is_named(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (mine / "adapter.py").write_text("import nosuch\n")
    monkeypatch.setenv(benchmarks.LIST_VARIABLE, f"searchqa,{mine},/nowhere/else")
    with pytest.raises(ConfigError) as raised:
        check_benchmarks()
    first, second = str(raised.value).splitlines()
    assert first.startswith("benchmark else: SKILLOPT_BENCHMARKS: /nowhere/else")
    assert second.startswith(f"benchmark mine: {mine}/adapter.py: ")


@pytest.mark.nightly
@pytest.mark.slow
def test_airflow_shows_the_import_error_and_runs_the_dags_of_the_others(mine: Path, tmp_path: Path) -> None:
    texts = ["", "train: {sed: 1}", "train: {seed: 1}"]
    before, broken, repaired = printed(
        "import_error_probe", PROJECT / "dags", str(mine / "benchmark.yaml"), *texts, AIRFLOW_HOME=str(tmp_path)
    )
    good = ids_of("searchqa") | {"skillopt_cleanup"}
    assert (before["errors"], before["runs"].keys()) == ({}, good | ids_of("mine"))
    assert list(broken["errors"]) == ["unreadable_benchmarks.py"]
    assert f"{mine}/benchmark.yaml: train.sed: no such key" in broken["errors"]["unreadable_benchmarks.py"]
    assert {dag_id for dag_id, runs in broken["runs"].items() if runs} >= good
    assert (repaired["errors"], set(repaired["runs"].values())) == ({}, {True})


@pytest.mark.nightly
def test_a_prefix_sets_all_dags_and_assets_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    before = all_dags.dags()
    monkeypatch.setenv(PREFIX_VARIABLE, "team-a.")
    made = all_dags.dags()
    assert set(made) == {f"team-a.{dag_id}" for dag_id in before}
    triggered = {
        task.trigger_dag_id for dag in made.values() for task in dag.tasks if isinstance(task, TriggerDagRunOperator)
    }
    assert triggered
    assert triggered <= set(made)
    assets = {
        outlet.name
        for dag in made.values()
        for task in dag.tasks
        for outlet in task.outlets
        if isinstance(outlet, Asset)
    }
    assert assets
    assert all(name.startswith("team-a.skillopt_") for name in assets)
    assert "--dag-id team-a.regate_searchqa " in str(made["team-a.regate_searchqa"].doc_md)
    # Without it, so that one tag finds all of a kind.
    assert made["team-a.train_searchqa_epoch"].tags == {"skillopt", "train", "searchqa"}


@pytest.mark.parametrize("prefix", ["a/", "x" * 101])
def test_a_prefix_that_airflow_does_not_take_is_refused(prefix: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PREFIX_VARIABLE, prefix)
    with pytest.raises(ConfigError, match="SKILLOPT_DAG_PREFIX = "):
        train_dag_id("searchqa")
