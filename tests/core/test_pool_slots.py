from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.config import TrainConfig, nest
from skillopt_airflow.core.pool_slots import calls_of_optimizer, calls_of_rollouts


def config(**knobs: Any) -> TrainConfig:
    return TrainConfig.from_layers(nest({path.replace("__", "."): value for path, value in knobs.items()}))


def test_a_slot_is_a_task_unless_it_is_said_to_be_a_call_and_always_in_airflows_own_pool() -> None:
    plain = config(sandbox__pool="provider", model__optimizer_pool="writers")
    assert (calls_of_rollouts(plain), calls_of_optimizer(plain)) == (None, None)
    mixed = config(sandbox__pool="provider", model__pool_slot="call")
    assert (calls_of_rollouts(mixed), calls_of_optimizer(mixed)) == (8, None)


@pytest.mark.parametrize(("workers", "most", "calls"), [(16, None, 16), (16, 2, 2), (1, 2, 1)])
def test_a_task_that_asks_the_optimizer_less_takes_less(workers: int, most: int | None, calls: int) -> None:
    asking = config(model__optimizer_pool="w", model__pool_slot="call", gradient__analyst_workers=workers)
    assert calls_of_optimizer(asking, most) == calls


@given(st.integers(1, 600), st.integers(1, 40))
def test_containers_at_the_same_time_take_no_more_than_the_runs_calls_in_flight(calls: int, containers: int) -> None:
    counted = config(
        sandbox__pool="p", sandbox__max_containers=containers, model__concurrency=calls, model__pool_slot="call"
    )
    each = calls_of_rollouts(counted)
    assert each is not None
    assert each >= 1
    assert each * containers <= max(calls, containers)
