from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.timeline import Moment, timeline
from skillopt_airflow.core.training_groups import OptimizerGroup, TrainGroup

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
