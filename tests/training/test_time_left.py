import math
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.timeline import MomentKind
from skillopt_airflow.training.time_left import RECENT, UNSURE, Done, Rollouts, Seconds, time_left, usual

SECONDS = st.floats(0.0, 1e6)
KINDS = st.sampled_from(["step", "slow_update", "meta_reflect"])


def test_what_a_step_usually_takes() -> None:
    assert usual([60.0]) == Seconds(40.0, 90.0)
    # Many equal steps say more, and those that differ are taken by their middle half.
    assert usual([60.0] * 25) == pytest.approx(Seconds(60 / (1 + UNSURE / math.sqrt(RECENT)), 66.7082039))
    assert usual([30.0, 30.0, 30.0, 60.0, 90.0, 90.0, 90.0]) == Seconds(30.0, 90.0)
    # A night in which nobody cleared a task changes little, and the latest steps count.
    assert usual([*[60.0] * 8, 30_000.0]).high < 75
    assert usual([*[600.0] * RECENT, *[60.0] * RECENT]) == usual([60.0] * RECENT)


STEP, SLOW = Done("step", 60.0), Done("slow_update", 6.0)


@pytest.mark.parametrize(
    ("done", "ahead", "elapsed", "expected"),
    [
        # Before the first step nobody knows.
        ([], ["step"], 0.0, None),
        ([SLOW], ["step"], 0.0, None),
        # What a step has taken already is not left.
        ([STEP], ["step", "step"], 50.0, Seconds(40.0, 130.0)),
        ([STEP], ["step", "step"], 3600.0, Seconds(40.0, 90.0)),
        # An epoch's end counts as those before, or else as a step.
        ([STEP], ["slow_update"], 0.0, Seconds(40.0, 90.0)),
        ([STEP, SLOW], ["slow_update"], 0.0, Seconds(4.0, 9.0)),
    ],
)
def test_what_is_left(done: list[Done], ahead: list[MomentKind], elapsed: float, expected: Seconds | None) -> None:
    assert time_left(done, ahead, elapsed, Rollouts(0, 0), Seconds(0.0, 0.0)) == expected


def test_what_follows_the_steps_counts_by_its_rollouts() -> None:
    assert time_left([STEP], [], 0.0, Rollouts(10, 40), Seconds(0.5, 2.0)) == Seconds(5.0, 80.0)


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
    done = [*(Done("step", seconds) for seconds in took), *(Done(*one) for one in others)]
    work = Rollouts(min(rollouts), sum(rollouts))
    now, later = (time_left(done, ahead, passed, work, Seconds(pace, 2 * pace)) for passed in (0.0, elapsed))
    assert 0 <= later.low <= later.high
    assert later.low <= now.low
    assert later.high <= now.high


@given(st.lists(SECONDS, min_size=1, max_size=40))
def test_the_median_is_in_the_range(took: list[float]) -> None:
    low, high = usual(took)
    middle = median(took[-RECENT:])
    assert low <= middle * (1 + 1e-9)
    assert middle <= high * (1 + 1e-9)
