import itertools
import math
from fractions import Fraction
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from skillopt_airflow.core import permutation
from skillopt_airflow.core.permutation import sign_flip_test, sign_test

THIRDS = st.integers(-3, 3).map(lambda third: third / 3)


def by_enumeration(differences: list[float]) -> float:
    patterns = itertools.product([-1, 1], repeat=len(differences))
    observed = math.fsum(differences)
    sums = [math.fsum(sign * abs(d) for sign, d in zip(pattern, differences, strict=True)) for pattern in patterns]
    return sum(one >= observed - 1e-9 for one in sums) / len(sums)


@given(st.lists(THIRDS, max_size=9))
def test_differences_of_means_of_draws_are_tested_exactly(differences: list[float]) -> None:
    assert sign_flip_test(differences) == by_enumeration(differences)


@given(st.lists(st.integers(-60, 60).map(lambda part: part / 100), min_size=1, max_size=9))
@example([-0.01, -0.01, -0.01, 0.03, 0.03, 0.03])
def test_other_differences_are_tested_exactly_where_they_are_steps_of_the_largest(differences: list[float]) -> None:
    assert sign_flip_test([*differences, 0.6]) == by_enumeration([*differences, 0.6])


@given(st.integers(0, 40), st.integers(0, 40), st.sampled_from([1.0, 1 / 3, 0.017]))
def test_equally_large_differences_are_a_sign_test(wins: int, losses: int, size: float) -> None:
    assert sign_flip_test([size] * wins + [0.0] * 3 + [-size] * losses) == sign_test(wins, losses)


@pytest.mark.parametrize("shift", [0.0, 0.02, 0.05])
def test_of_many_differences_it_goes_on_as_it_was(shift: float, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(7)
    differences = [min(1.0, max(-1.0, random.gauss(shift, 0.4))) for _ in range(600)]
    counted = sign_flip_test(differences)
    monkeypatch.setattr(permutation, "MOST_COUNTED", 599)
    assert sign_flip_test(differences) == pytest.approx(counted, rel=0.03)


def test_a_hundred_thousand_differences_are_no_matter() -> None:
    random = Random(8)
    differences = [random.uniform(-1, 1) for _ in range(100_000)]
    assert 0.001 < sign_flip_test(differences) < 0.999
    assert sign_flip_test([d + 0.01 for d in differences]) < 0.001


def test_one_large_document_does_not_hide_the_gains_of_all_others() -> None:
    gains = [0.05 + 0.0005 * place for place in range(60)]
    assert sign_flip_test([*gains, 10.1]) == 2.0**-61
    assert sign_flip_test([*gains, -1.0]) < 0.001


@pytest.mark.parametrize(
    ("differences", "p"),
    [
        ([0.8125, 2.3e-309, 2.3e-309], 1 / 2),
        ([0.8125, -5e-324, -5e-324, -5e-324], 1 / 2),
        ([-0.8125, 1e-12, 1e-12], 1.0),
        ([2.3e-309, 5e-324], 1.0),
        ([], 1.0),
    ],
)
def test_differences_below_the_resolution_count_as_zero(differences: list[float], p: float) -> None:
    assert sign_flip_test(differences) == p


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_the_order_does_not_count(differences: list[float], random: Random) -> None:
    other = [*differences]
    random.shuffle(other)
    assert sign_flip_test(other) == sign_flip_test(differences)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30))
def test_both_directions_together_are_at_least_certain(differences: list[float]) -> None:
    p, other = sign_flip_test(differences), sign_flip_test([-d for d in differences])
    assert 0 < p <= 1
    assert p + other >= 1


@pytest.mark.nightly
@pytest.mark.parametrize("size", [17, 200])
def test_of_graded_scores_it_keeps_its_level(size: int) -> None:
    random, trials = Random(3), 1000
    found = sum(
        sign_flip_test([random.random() ** 3 - random.random() ** 3 for _ in range(size)]) <= 0.05
        for _ in range(trials)
    )
    # Three standard errors about the level.
    assert found / trials == pytest.approx(0.05, abs=0.021)


COUNTS = st.integers(0, 60)


@given(COUNTS, COUNTS)
def test_the_sign_test_is_the_binomial_tail(wins: int, losses: int) -> None:
    n = wins + losses
    assert sign_test(wins, losses) == float(Fraction(sum(math.comb(n, k) for k in range(wins, n + 1)), 2**n))
    # Five thousand items neither overflow nor fail.
    assert (sign_test(5000, 0), sign_test(2500, 2500) > 0.5) == (0.0, True)
