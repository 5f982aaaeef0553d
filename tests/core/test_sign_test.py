import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.sign_test import sign_test

COUNTS = st.integers(0, 60)


@given(COUNTS, COUNTS)
def test_the_sign_test_is_the_binomial_tail(wins: int, losses: int) -> None:
    n = wins + losses
    assert sign_test(wins, losses) == float(Fraction(sum(math.comb(n, k) for k in range(wins, n + 1)), 2**n))


@pytest.mark.parametrize(
    ("wins", "losses", "p"), [(0, 0, 1), (0, 3, 1), (5, 0, 1 / 32), (4, 1, 6 / 32), (3, 3, 42 / 64)]
)
def test_p_values(wins: int, losses: int, p: float) -> None:
    assert sign_test(wins, losses) == p


def test_five_thousand_items_neither_overflow_nor_fail() -> None:
    assert sign_test(5000, 0) == 0.0
    assert sign_test(2500, 2500) > 0.5
