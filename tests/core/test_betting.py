import math
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.betting import BETTORS, SHARES, highest_capital, log_evidence

DIFFERENCES = st.lists(st.floats(-1, 1), max_size=30)


@given(st.floats(0.1, 1), st.floats(0.1, 1), st.integers(1, 6), st.floats(1.1, 8))
def test_a_mean_of_zero_reaches_a_capital_with_a_chance_of_at_most_its_inverse(
    gain: float, loss: float, count: int, enough: float
) -> None:
    # A difference of mean 0 with two values: all their sequences, each with its chance.
    chances = {gain: loss / (gain + loss), -loss: gain / (gain + loss)}
    reached = math.fsum(
        math.prod(chances[one] for one in differences)
        for differences in product(chances, repeat=count)
        if highest_capital(differences, enough) >= enough
    )
    assert reached <= 1 / enough + 1e-9


@given(DIFFERENCES)
def test_the_highest_capital_is_that_of_some_moment(differences: list[float]) -> None:
    moments = [
        math.fsum(math.prod(1 + share * difference for difference in differences[:end]) for share in SHARES) / BETTORS
        for end in range(len(differences) + 1)
    ]
    assert highest_capital(differences, math.inf) == pytest.approx(max(moments))
    reached = next((capital for capital in moments if capital >= 3), max(moments))
    assert highest_capital(differences, 3) == pytest.approx(reached)
    # Nothing seen is no evidence.
    assert log_evidence([0.0] * BETTORS) == 0.0


@pytest.mark.nightly
def test_who_gains_nothing_seldom_rises_high_at_any_moment() -> None:
    random, trials = Random(8), 2000
    differences = [[random.choice([0.1] * 9 + [-0.9]) for _ in range(200)] for _ in range(trials)]
    found = sum(highest_capital(one, 20) >= 20 for one in differences)
    # At most 5 % ever reach 20, and three standard errors of 2,000 trials.
    assert found / trials <= 0.065
