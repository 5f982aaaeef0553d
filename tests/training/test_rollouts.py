from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.core.config import TrainConfig, nest
from include.core.errors import ConfigError
from include.core.types import DATA_SPLITS, Split
from include.store.artifacts import ArtifactStore
from include.store.keys import ArtifactKeys
from include.training.publishing import plan_publication
from include.training.rollouts import (
    RolloutPlan,
    check_mappable,
    chunks_of,
    cut,
    ids,
    planned,
    scoring_demand,
    store_plan,
    striped,
    training_demands,
)
from include.training.workload import ChunkWorkload
from tests.training.in_process import Training
from tests.training.local_store import LocalStore

SIZES = st.integers(1, 50)
COUNTS = st.integers(0, 2000)


@given(COUNTS, SIZES)
def test_chunks_cover_all_items_once_evenly_and_as_few_as_possible(count: int, size: int) -> None:
    parts = cut(range(count), size)
    assert [item for part in parts for item in part] == list(range(count))
    assert len(parts) == -(-count // size)
    assert all(1 <= len(part) <= size for part in parts)
    assert not parts or max(map(len, parts)) - min(map(len, parts)) <= 1


@given(COUNTS, SIZES)
def test_stripes_advance_through_the_order_together(count: int, size: int) -> None:
    parts = striped(range(count), size)
    assert sorted(item for part in parts for item in part) == list(range(count))
    assert len(parts) == -(-count // size)
    for rank in range(max(map(len, parts), default=0)):
        begun = {part[rank] for part in parts if rank < len(part)}
        assert begun <= set(range(rank * len(parts), (rank + 1) * len(parts)))


def test_no_items_no_chunks() -> None:
    assert cut([], 20) == striped([], 20) == []


def test_a_plan_never_gets_shorter() -> None:
    training = Training.of(train__num_epochs=1)
    training.task("prepare", training._prepare)
    run = training.run
    moment, chunks = (
        run.timeline[1],
        chunks_of(run, "evaluate", run.keys.skill(0), Split.VAL, ids(run.items(Split.VAL))),
    )
    assert len(store_plan(run, moment, "evaluate", [])) == 0
    assert len(store_plan(run, moment, "evaluate", chunks)) == len(chunks) == 3
    refs = store_plan(run, moment, "evaluate", chunks[:1])
    assert [len(planned(run, ref)[1].item_ids) for ref in refs] == [8, 0, 0]
    empty = ChunkWorkload(run, refs[2], "dag-run")
    assert (empty.items, empty.coverage()) == ([], 1.0)
    assert len(store_plan(run, moment, "evaluate", [])) == 3


SIZES_OF_SPLITS = {Split.TRAIN: 400, Split.VAL: 200, Split.TEST: 1400}


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({}, ""),
        ({"publishing.draws": 51}, ""),
        ({"publishing.draws": 60}, "publishing: 1200 chunks, and Airflow makes at most 1024 tasks"),
        ({"publishing.draws": 60}, "raise sandbox.items_per_container = 20, or lower publishing.draws = 60$"),
        ({"publishing.draws": 60, "evaluation.val_limit": 100}, ""),
        ({"publishing.draws": 60, "sandbox.items_per_container": 40}, ""),
        (
            {"evaluation.draws": 8},
            "the test of two skills: 1120 .* evaluation.draws = 8 or evaluation.test_limit = all$",
        ),
        ({"evaluation.draws": 8, "evaluation.test_limit": 1000}, ""),
        ({"evaluation.draws": 8, "evaluation.eval_test": False}, ""),
        ({"evaluation.draws": 8, "model.batch": True}, ""),
        ({"evaluation.draws": 110, "evaluation.eval_test": False}, "the evaluation of a candidate: 1100 chunks"),
        (
            {"evaluation.draws": 80, "evaluation.eval_test": False, "evaluation.early_reject": True},
            "evaluation of a cand",
        ),
        ({"train.batch_size": 400, "sandbox.items_per_container": 1}, "the test of two skills: 2800"),
        ({"optimizer.slow_update_samples": 400, "sandbox.items_per_container": 1}, "the test of two skills: 2800"),
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
    assert scoring_demand(config, 2, 41).chunks == 2 * 3 * 3


@pytest.mark.slow
@pytest.mark.parametrize(
    "knobs",
    [
        {},
        {"train__speculative_rollout": True, "evaluation__draws": 2, "publishing__draws": 2},
        {"evaluation__early_reject": True, "evaluation__draws": 2, "evaluation__val_limit": 11, "train__num_epochs": 1},
        {"evaluation__gate_policy": "confirm", "optimizer__slow_update_samples": 30},
    ],
)
def test_no_plan_of_a_training_is_larger_than_its_demand(knobs: dict[str, Any]) -> None:
    training = Training.of(**knobs, sandbox__items_per_container=3, sandbox__max_containers=2)
    training()
    artifacts = ArtifactStore(LocalStore(), ArtifactKeys("", "searchqa", "openai-chat:stand-in-target"))
    plan_publication(training.run, artifacts, "manual__a", training.config.publishing)
    keys = [key for key in training.store.list_keys(training.run.keys.folder) if "/plans/" in key]
    assert any("publish" in key for key in keys)
    demands = training_demands(training.config, dict.fromkeys(DATA_SPLITS, 1000))
    most = {demand.kind: demand.chunks for demand in demands}
    kinds = {
        "rollout": "a step's batch",
        "longitudinal": "the comparison of two epochs",
        "test": "the test of two skills",
        "confirm": "publishing",
        "publish-manual__a": "publishing",
    }
    for key in keys:
        name = key.rpartition("/")[2].removesuffix(".json")
        chunks = training.store.get_model(key, RolloutPlan).chunks
        assert len(chunks) <= most[kinds.get(name, "the evaluation of a candidate")], key
