import math
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.timeline import MomentKind
from skillopt_airflow.training.time_left import RECENT, UNSURE, Done, Rollouts, Seconds, time_left, usual

NONE, AT_ONCE = Rollouts(0, 0), Seconds(0.0, 0.0)
SECONDS = st.floats(0.0, 1e6)
KINDS = st.sampled_from(["step", "slow_update", "meta_reflect"])


def steps(*seconds: float) -> list[Done]:
    return [Done("step", one) for one in seconds]


@pytest.mark.parametrize("done", [[], [Done("slow_update", 5.0)]])
def test_before_the_first_step_nobody_knows(done: list[Done]) -> None:
    assert time_left(done, ["step"], 0.0, NONE, AT_ONCE) is None


def test_one_step_says_little() -> None:
    assert usual([60.0]) == Seconds(40.0, 90.0)


def test_many_equal_steps_say_more() -> None:
    assert usual([60.0] * 25) == pytest.approx(Seconds(60 / (1 + UNSURE / math.sqrt(RECENT)), 66.7082039))


def test_steps_that_differ_are_taken_by_their_middle_half() -> None:
    assert usual([30.0, 30.0, 30.0, 60.0, 90.0, 90.0, 90.0]) == Seconds(30.0, 90.0)


def test_a_night_in_which_nobody_cleared_a_task_changes_little() -> None:
    assert usual([*[60.0] * 8, 30_000.0]).high < 75


def test_the_latest_steps_count() -> None:
    assert usual([*[600.0] * RECENT, *[60.0] * RECENT]) == usual([60.0] * RECENT)


def test_what_a_step_has_taken_already_is_not_left() -> None:
    assert time_left(steps(60.0), ["step", "step"], 50.0, NONE, AT_ONCE) == Seconds(40.0, 130.0)
    assert time_left(steps(60.0), ["step", "step"], 3600.0, NONE, AT_ONCE) == Seconds(40.0, 90.0)


def test_an_epochs_end_counts_as_those_before_or_else_as_a_step() -> None:
    assert time_left(steps(60.0), ["slow_update"], 0.0, NONE, AT_ONCE) == Seconds(40.0, 90.0)
    done = [*steps(60.0), Done("slow_update", 6.0)]
    assert time_left(done, ["slow_update"], 0.0, NONE, AT_ONCE) == Seconds(4.0, 9.0)


def test_what_follows_the_steps_counts_by_its_rollouts() -> None:
    assert time_left(steps(60.0), [], 0.0, Rollouts(10, 40), Seconds(0.5, 2.0)) == Seconds(5.0, 80.0)


@given(
    st.lists(SECONDS, min_size=1, max_size=40),
    st.lists(st.tuples(KINDS, SECONDS), max_size=10),
    st.lists(KINDS, max_size=10),
    SECONDS,
    st.tuples(st.integers(0, 1000), st.integers(0, 1000)),
    SECONDS,
)
def test_it_is_a_range_and_shrinks_while_time_passes(
    took: list[float],
    others: list[tuple[MomentKind, float]],
    ahead: list[MomentKind],
    elapsed: float,
    rollouts: tuple[int, int],
    pace: float,
) -> None:
    done = [*steps(*took), *(Done(*one) for one in others)]
    work = Rollouts(min(rollouts), sum(rollouts))
    now, later = (time_left(done, ahead, passed, work, Seconds(pace, 2 * pace)) for passed in (0.0, elapsed))
    assert now is not None
    assert later is not None
    assert 0 <= later.low <= later.high
    assert later.low <= now.low
    assert later.high <= now.high


@given(st.lists(SECONDS, min_size=1, max_size=40))
def test_the_median_is_in_the_range(took: list[float]) -> None:
    low, high = usual(took)
    middle = median(took[-RECENT:])
    assert low <= middle * (1 + 1e-9)
    assert middle <= high * (1 + 1e-9)
