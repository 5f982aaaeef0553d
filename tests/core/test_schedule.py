import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.core.config import OptimizerGroup, TrainGroup
from include.core.schedule import batch, edit_budget, steps_in_epoch

RATES = st.tuples(st.integers(1, 40), st.integers(1, 40)).map(sorted)
TOTALS = st.integers(2, 200)


def budgets(scheduler: str, lowest: int, highest: int, total: int) -> list[int]:
    rules = OptimizerGroup.model_validate(
        {"learning_rate": highest, "min_learning_rate": lowest, "lr_scheduler": scheduler}
    )
    return [edit_budget(step, total, rules) for step in range(1, total + 1)]


@given(st.sampled_from(["constant", "linear", "cosine"]), RATES, TOTALS)
def test_schedules_fall_within_their_bounds(scheduler: str, rates: list[int], total: int) -> None:
    lowest, highest = rates
    steps = budgets(scheduler, lowest, highest, total)
    assert all(lowest <= budget <= highest for budget in steps)
    assert steps == sorted(steps, reverse=True)
    assert steps[-1] == (highest if scheduler == "constant" else lowest)


@given(RATES, TOTALS)
def test_schedules_equal_their_formulas(rates: list[int], total: int) -> None:
    low, high = rates
    progress = [step / total for step in range(1, total + 1)]
    linear = [max(low, round(high + (low - high) * p)) for p in progress]
    cosine = [max(low, round(low + (high - low) * (1 + math.cos(math.pi * p)) / 2)) for p in progress]
    assert budgets("constant", low, high, total) == [high] * total
    assert budgets("linear", low, high, total) == linear
    assert budgets("cosine", low, high, total) == cosine


def test_known_schedules() -> None:
    assert budgets("cosine", 2, 4, 6) == [4, 4, 3, 2, 2, 2]
    assert budgets("linear", 2, 5, 2) == [4, 2], "3.5 is rounded half to even"
    assert budgets("linear", 2, 3, 2) == [2, 2], "2.5 is rounded half to even"


@pytest.mark.parametrize("total", [0, 1])
def test_a_single_step_has_the_highest_rate(total: int) -> None:
    assert edit_budget(1, total, OptimizerGroup(learning_rate=7, min_learning_rate=1)) == 7


@given(st.integers(0, 300), st.integers(1, 50), st.integers(1, 20), st.integers(1, 5), st.integers())
def test_an_epoch_sees_each_item_once(size: int, batch_size: int, most: int, epoch: int, seed: int) -> None:
    train = TrainGroup(batch_size=batch_size, steps_per_epoch=most, seed=seed)
    steps = steps_in_epoch(size, train)
    seen = [item for position in range(1, steps + 1) for item in batch(range(size), epoch, position, train)]
    assert steps <= most
    assert all(batch(range(size), epoch, position, train) for position in range(1, steps + 1))
    assert len(seen) == len(set(seen)) == min(size, most * batch_size)


def test_the_order_depends_on_seed_and_epoch_only() -> None:
    train, items = TrainGroup(batch_size=50), list(range(50))
    order = batch(items, 1, 1, train)
    random.seed(99)
    assert batch(items, 1, 1, train) == order
    assert items == list(range(50))
    assert batch(items, 2, 1, train) != order
    assert batch(items, 1, 1, TrainGroup(batch_size=50, seed=43)) != order
