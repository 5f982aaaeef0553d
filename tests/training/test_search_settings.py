from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.resource_groups import SearchGroup
from skillopt_airflow.training.search_settings import search_settings

DAY = "2026-11-23"


def test_rollouts_of_another_day_or_search_are_others_and_those_without_a_search_as_before() -> None:
    searching = {"search": {"conn_id": "skillopt_search"}, "model": {"harness": "tools", "max_turns": 8}}
    config = TrainConfig.from_layers(searching)
    one = search_settings(config, f"{DAY}T23:59:00+00:00")
    assert one == search_settings(config, f"{DAY}T00:00:00+00:00")
    assert one != search_settings(config, "2026-11-24T00:00:00+00:00")
    assert search_settings(TrainConfig(), f"{DAY}T00:00:00+00:00") == {}
    assert SearchGroup(seconds=5).patience == 4 * 25
