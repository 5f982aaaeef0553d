from collections import Counter
from typing import Any

import pytest

from skillopt_airflow.core.config import TrainConfig, nest
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.types import DATA_SPLITS, Split
from skillopt_airflow.store.artifacts import ArtifactStore
from skillopt_airflow.store.keys import ArtifactKeys
from skillopt_airflow.training.map_limits import check_mappable, scoring_demand, training_demands
from skillopt_airflow.training.publication import plan_publication
from skillopt_airflow.training.rollout_plan import RolloutPlan
from tests.training.in_process import Training
from tests.training.local_store import LocalStore

EVALUATION = "the evaluation of a candidate"
TWENTY = {"sandbox.items_per_container": 20}
SIZES_OF_SPLITS = {Split.TRAIN: 400, Split.VAL: 200, Split.TEST: 1400}


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({}, ""),
        (
            {"publishing.draws": 60, **TWENTY},
            r"publishing: 8400 chunks, .* 1024 .*container = 20 .*containers = 4, .*publishing\.draws = 60$",
        ),
        ({"publishing.draws": 60, "evaluation.test_limit": 160, **TWENTY}, ""),
        ({"evaluation.draws": 8, **TWENTY}, "of 2 skills: 1120 .*evaluation.draws = 8 or evaluation.test_limit = all$"),
        ({"evaluation.draws": 8, "evaluation.test_limit": 1000, **TWENTY}, ""),
        ({"evaluation.draws": 8, "evaluation.eval_test": False, **TWENTY}, ""),
        ({"evaluation.draws": 8, "model.batch": True, **TWENTY}, ""),
        ({"evaluation.draws": 110, "evaluation.eval_test": False, **TWENTY}, "a candidate: 1100 chunks"),
        (
            {"evaluation.draws": 101, "evaluation.eval_test": False, "sandbox.max_containers": 16},
            "a candidate: 1616 chunks",
        ),
        ({"train.batch_size": 400, "sandbox.items_per_container": 1}, "of 2 skills: 2800"),
        # The seed's test has a plan of its own, and the last epoch's skill is the last one.
        ({"evaluation.draws": 3, "evaluation.test_each_epoch": True, **TWENTY}, "the test of 5 skills: 1080 "),
        ({"evaluation.draws": 3, **TWENTY}, ""),
    ],
)
def test_more_chunks_than_airflow_makes_tasks_of(knobs: dict[str, Any], said: str) -> None:
    config = TrainConfig.from_layers(nest(knobs))
    demands = training_demands(config, SIZES_OF_SPLITS)
    if not said:
        check_mappable(config, demands, 1024)
        return
    with pytest.raises(ConfigError, match=said):
        check_mappable(config, demands, 1024)


def test_the_demand_of_skills_on_items() -> None:
    config = TrainConfig.from_layers(nest({"evaluation.draws": 3}))
    assert scoring_demand(config, 2, [41]).chunks == 2 * 3 * 2
    assert scoring_demand(config, 3, [41]).chunks == 3 * 3 * 4
    assert scoring_demand(config, 2, [41, 41]).chunks == 2 * 2 * 3 * 2


# The slow update that a step follows.
AHEAD = {
    "train__speculative_rollout": True,
    "train__num_epochs": 3,
    "train__steps_per_epoch": 1,
}


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"train__speculative_rollout": True, "evaluation__draws": 2, "publishing__draws": 2},
        {"evaluation__draws": 2, "evaluation__val_limit": 11, "train__num_epochs": 1},
        AHEAD,
        AHEAD | {"train__rollouts_per_item": 3},
        {"optimizer__slow_update_samples": 30, "evaluation__val_limit": 24},
    ],
)
def test_no_plan_of_a_training_is_larger_than_its_demand(knobs: dict[str, Any]) -> None:
    small = {"sandbox__items_per_container": 3, "sandbox__max_containers": 2, "train__speculative_rollout": False}
    small |= {"train__num_epochs": 2, "train__steps_per_epoch": 1, "train__preflight": False}
    small |= {"evaluation__val_limit": 12, "evaluation__test_limit": 6, "publishing__gate_policy": "strict"}
    training = Training.of(**(small | knobs))
    training()
    artifacts = ArtifactStore(LocalStore(), ArtifactKeys("", "searchqa", "openai-chat:stand-in-target"))
    plan_publication(training.run, artifacts, "manual__a", training.config.publishing)
    keys = [key for key in training.store.list_keys(training.run.keys.folder) if "/plans/" in key]
    assert any("publish" in key for key in keys)
    sizes = {split: len(training.run.items(split)) for split in DATA_SPLITS}
    demands = training_demands(training.config, sizes)
    most = {demand.kind: demand.chunks for demand in demands}
    kinds = {
        "rollout": "a step's batch",
        "ahead": "a step's batch",
        "longitudinal": "the comparison of two epochs",
        "test": "the test of 2 skills",
        "publish-manual__a": "publishing",
    }
    largest: Counter[str] = Counter()
    for key in keys:
        name = key.rpartition("/")[2].removesuffix(".json")
        chunks = training.store.get_model(key, RolloutPlan).chunks
        kind = kinds.get(name, EVALUATION)
        largest[kind] = max(largest[kind], len(chunks))
    assert all(largest[kind] <= most[kind] for kind in largest), largest
    exact = {"a step's batch", EVALUATION}
    if training.state.best.version:
        exact.add("publishing")
    assert {kind: largest[kind] for kind in exact} == {kind: most[kind] for kind in exact}
