"""Ids of DAGs and names of assets, with a prefix and without."""

import pytest
from airflow.providers.standard.operators.trigger_dagrun import TriggerDagRunOperator
from airflow.sdk import Asset

from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.pipeline import all_dags
from skillopt_airflow.pipeline.tasks.dag_ids import PREFIX_VARIABLE, train_dag_id


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
