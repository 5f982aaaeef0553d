import math
import random
from fractions import Fraction
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.config.training_groups import OptimizerGroup, TrainGroup
from skillopt_airflow.core.run.timeline import Moment, edit_budget, sample, slices, steps_in_epoch, timeline

OPTIMIZERS = st.builds(
    OptimizerGroup, use_slow_update=st.booleans(), use_meta_skill=st.booleans(), use_meta_reflect=st.booleans()
)
CONFIGS = st.builds(TrainConfig, train=st.builds(TrainGroup, num_epochs=st.integers(1, 12)), optimizer=OPTIMIZERS)
STEPS = st.integers(1, 15)


def names(epochs: int, steps: int, **optimizer: bool) -> list[str]:
    config = TrainConfig.from_layers({"train": {"num_epochs": epochs}, "optimizer": optimizer})
    return [moment.name for moment in timeline(config, steps)]


@given(CONFIGS, STEPS)
def test_a_run_goes_from_the_seed_through_every_step_to_its_end(config: TrainConfig, steps: int) -> None:
    moments, epochs = timeline(config, steps), config.train.num_epochs
    assert moments[0] == Moment(kind="seed", epoch=0, step=0)
    assert moments[-1] == Moment(kind="final", epoch=epochs, step=epochs * steps)
    assert [moment.kind for moment in moments[1:-1] if moment.kind in ("seed", "final")] == []
    taken = [(moment.epoch, moment.step) for moment in moments if moment.kind == "step"]
    assert taken == [(1 + number // steps, number + 1) for number in range(epochs * steps)]
    assert len({moment.name for moment in moments}) == len(moments)
    # Time never runs backwards.
    for earlier, later in pairwise(moments):
        assert later.epoch >= earlier.epoch
        assert later.step == earlier.step + (later.kind == "step"), "only a step takes one"


@given(CONFIGS, STEPS)
def test_an_epoch_ends_with_what_is_wanted_there(config: TrainConfig, steps: int) -> None:
    optimizer, epochs = config.optimizer, config.train.num_epochs
    moments = timeline(config, steps)
    for epoch in range(1, epochs + 1):
        here = [moment for moment in moments if moment.epoch == epoch and moment.kind != "final"]
        memory_is_read = optimizer.use_meta_skill and epoch < epochs
        wanted: list[str] = []
        if (epoch >= 2 and optimizer.use_slow_update) or memory_is_read:
            wanted.append("slow_update")
        if optimizer.use_meta_reflect:
            wanted.append("meta_reflect")
        assert [moment.kind for moment in here] == ["step"] * steps + wanted
        assert all(moment.step == epoch * steps for moment in here[steps:])


def test_the_names_of_a_run_s_moments() -> None:
    assert names(1, 2) == ["steps/step_0000", "steps/step_0001", "steps/step_0002", "final"]
    first = ["steps/step_0001", "slow_update/epoch_01", "meta_reflect/epoch_01"]
    second = ["steps/step_0002", "slow_update/epoch_02"]
    whole = ["steps/step_0000", *first, *second, "meta_reflect/epoch_02", "final"]
    assert names(2, 1, use_meta_reflect=True) == whole
    with pytest.raises(ValidationError, match="kind"):
        Moment.model_validate({"kind": "lunch", "epoch": 1, "step": 1})


RATES = st.tuples(st.integers(1, 40), st.integers(1, 40)).map(sorted)
TOTALS = st.integers(2, 200)


def budgets(scheduler: str, lowest: int, highest: int, total: int) -> list[int]:
    rules = OptimizerGroup.model_validate(
        {"learning_rate": highest, "min_learning_rate": lowest, "lr_scheduler": scheduler}
    )
    found = [edit_budget(step, total, rules) for step in range(1, total + 1)]
    return [budget for budget in found if budget is not None]


def cosine(progress: Fraction) -> Fraction:
    """Of pi times progress; exact where it is rational, for only there can a rate be a half."""
    exact = {Fraction(1, 3): Fraction(1, 2), Fraction(1, 2): Fraction(0), Fraction(2, 3): Fraction(-1, 2)}
    return exact.get(progress, Fraction(math.cos(math.pi * progress)))


@given(RATES, TOTALS)
def test_schedules_equal_their_formulas(rates: list[int], total: int) -> None:
    low, high = rates
    progress = [Fraction(step, total) for step in range(1, total + 1)]
    assert budgets("constant", low, high, total) == [high] * total
    assert budgets("linear", low, high, total) == [max(low, round(high + (low - high) * p)) for p in progress]
    falling = [max(low, round(low + (high - low) * (1 + cosine(p)) / 2)) for p in progress]
    assert budgets("cosine", low, high, total) == falling


def test_known_schedules() -> None:
    assert [edit_budget(1, total, OptimizerGroup(learning_rate=7, min_learning_rate=1)) for total in (0, 1)] == [7, 7]
    assert budgets("cosine", 2, 4, 6) == [4, 4, 3, 2, 2, 2]
    assert budgets("linear", 2, 5, 2) == [4, 2], "3.5 is rounded half to even"
    assert budgets("linear", 2, 3, 2) == [2, 2], "2.5 is rounded half to even"
    assert budgets("linear", 2, 23, 14)[8] == 10, "23 - 21 * 9 / 14 = 9.5, whatever floating point makes of 9 / 14"
    assert budgets("cosine", 14, 40, 198)[131] == 20, "14 + 26 * (1 - 0.5) / 2 = 20.5"


@given(st.sampled_from(["constant", "linear", "cosine"]), RATES, st.integers(0, 50))
def test_the_other_modes_have_limits_of_their_own(scheduler: str, rates: list[int], total: int) -> None:
    low, high = rates
    group = {"learning_rate": high, "min_learning_rate": low, "lr_scheduler": scheduler}
    chosen = OptimizerGroup.model_validate({**group, "lr_control_mode": "autonomous"})
    every = OptimizerGroup.model_validate({**group, "lr_control_mode": "none"})
    for step in range(1, total + 1):
        assert edit_budget(step, total, chosen) == high
        assert edit_budget(step, total, every) is None
        for mode in ("fixed", "autonomous", "none"):
            rules = {**group, "lr_control_mode": mode, "skill_update_mode": "full_rewrite_minibatch"}
            assert edit_budget(step, total, OptimizerGroup.model_validate(rules)) == 1


SIZES, BATCHES, SLICES = st.integers(0, 300), st.integers(1, 50), st.integers(1, 5)


@given(SIZES, BATCHES, SLICES, st.none() | st.integers(1, 20), st.integers(1, 5), st.integers())
def test_an_epoch_sees_each_item_once(
    size: int, batch_size: int, accumulation: int, cap: int | None, epoch: int, seed: int
) -> None:
    train = TrainGroup(batch_size=batch_size, accumulation=accumulation, steps_per_epoch=cap, seed=seed)
    steps, most = steps_in_epoch(size, train), size if cap is None else cap
    taken = [slices(range(size), epoch, position, train) for position in range(1, steps + 1)]
    seen = [item for step in taken for part in step for item in part]
    assert steps == min(most, math.ceil(math.ceil(size / batch_size) / accumulation))
    assert len(seen) == len(set(seen)) == min(size, most * accumulation * batch_size)
    assert all(step and all(step) for step in taken), "no step and no slice is empty"
    assert all(len(step) == accumulation for step in taken[:-1])
    assert all(len(part) == batch_size for part in [part for step in taken for part in step][:-1])
    if steps < most:
        assert slices(range(size), epoch, steps + 1, train) == []


@given(SIZES, BATCHES, SLICES, st.integers(1, 5))
def test_accumulation_only_gathers_slices(size: int, batch_size: int, accumulation: int, epoch: int) -> None:
    one = TrainGroup(batch_size=batch_size)
    many = one.model_copy(update={"accumulation": accumulation})
    items = range(size)
    single = [slices(items, epoch, position, one) for position in range(1, steps_in_epoch(size, one) + 1)]
    gathered = [slices(items, epoch, position, many) for position in range(1, steps_in_epoch(size, many) + 1)]
    assert [part for step in gathered for part in step] == [part for step in single for part in step]


def test_the_order_depends_on_seed_and_epoch_only() -> None:
    train, items = TrainGroup(batch_size=25, accumulation=2), list(range(50))
    order = slices(items, 1, 1, train)
    random.seed(99)
    assert slices(items, 1, 1, train) == order
    assert items == list(range(50))
    assert slices(items, 2, 1, train) != order
    assert slices(items, 1, 1, train.model_copy(update={"seed": 43})) != order


@given(st.lists(st.integers()), st.integers(0, 40), st.text(max_size=5))
def test_a_sample_keeps_the_order_of_its_items(items: list[int], count: int, seed: str) -> None:
    numbered = list(enumerate(items))
    drawn = sample(numbered, count, seed)
    assert drawn == sample(numbered, count, seed)
    assert len(drawn) == len(set(drawn)) == min(count, len(items))
    assert drawn == [entry for entry in numbered if entry in drawn]
    # It depends on its seed.
    assert {item for seed in range(200) for item in sample(range(50), 5, str(seed))} == set(range(50))
