import math
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.sign_test import e_value, log_e_value, sign_test

COUNTS = st.integers(0, 60)


def integral(wins: int, losses: int) -> Fraction:
    """Over [1/2, 1] of th^wins (1-th)^losses, by expanding the power of (1-th)."""
    terms = ((math.comb(losses, k) * (-1) ** k, wins + k + 1) for k in range(losses + 1))
    return sum((Fraction(factor, power) * (1 - Fraction(1, 2**power)) for factor, power in terms), Fraction(0))


@given(COUNTS, COUNTS)
def test_the_sign_test_is_the_binomial_tail(wins: int, losses: int) -> None:
    n = wins + losses
    assert sign_test(wins, losses) == float(Fraction(sum(math.comb(n, k) for k in range(wins, n + 1)), 2**n))


@pytest.mark.parametrize(
    ("wins", "losses", "p"), [(0, 0, 1), (0, 3, 1), (5, 0, 1 / 32), (4, 1, 6 / 32), (3, 3, 42 / 64)]
)
def test_p_values(wins: int, losses: int, p: float) -> None:
    assert sign_test(wins, losses) == p


@given(COUNTS, COUNTS)
def test_the_e_value_is_the_integral(wins: int, losses: int) -> None:
    exact = 2 ** (wins + losses + 1) * integral(wins, losses)
    assert e_value(wins, losses) == float(exact)
    assert log_e_value(wins, losses) == pytest.approx(math.log(exact), abs=1e-9)


@given(st.integers(0, 200))
def test_without_an_effect_the_mean_e_value_is_1(n: int) -> None:
    mean = math.fsum(math.comb(n, wins) / 2**n * e_value(wins, n - wins) for wins in range(n + 1))
    assert mean == pytest.approx(1)


@pytest.mark.parametrize(("wins", "losses", "e"), [(0, 0, 1), (1, 0, 1.5), (0, 1, 0.5), (3, 0, 3.75), (5, 0, 10.5)])
def test_e_values(wins: int, losses: int, e: float) -> None:
    assert e_value(wins, losses) == e


def test_five_thousand_items_neither_overflow_nor_vanish() -> None:
    assert log_e_value(5000, 0) == pytest.approx(5001 * math.log(2) - math.log(5001))
    assert e_value(5000, 0) == math.nextafter(math.inf, 0)
    assert 0 < e_value(2500, 2500) < 1 < e_value(2600, 2400)
    assert sign_test(5000, 0) == 0.0
    assert sign_test(2500, 2500) > 0.5
