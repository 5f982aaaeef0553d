import math
from fractions import Fraction
from itertools import product
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.permutation import FLIPS, sign_flip_test, sign_test

DIFFERENCES = st.lists(st.sampled_from([-1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0]), min_size=1, max_size=10)


def by_enumeration(differences: list[float]) -> float:
    """The exact p-value, by all patterns of signs."""
    observed, sizes = sum(differences), [abs(difference) for difference in differences]
    patterns = list(product((1, -1), repeat=len(sizes)))
    as_large = sum(sum(map(math.prod, zip(signs, sizes, strict=True))) >= observed for signs in patterns)
    return as_large / len(patterns)


@given(DIFFERENCES)
def test_it_is_the_exact_test_but_for_the_randomness_of_the_patterns(differences: list[float]) -> None:
    # Four standard errors of a share among so many patterns.
    assert sign_flip_test(differences) == pytest.approx(by_enumeration(differences), abs=2 / math.sqrt(FLIPS))


@given(st.integers(0, 40), st.integers(0, 40), st.sampled_from([1.0, 1 / 3, 0.017]))
def test_equally_large_differences_are_a_sign_test(wins: int, losses: int, size: float) -> None:
    expected = sign_test(wins, wins + losses) if wins + losses else 1.0
    assert sign_flip_test([size] * wins + [0.0] * 3 + [-size] * losses) == expected


@given(st.integers(0, 60), st.integers(0, 60))
def test_the_sign_test_is_the_binomial_tail(wins: int, losses: int) -> None:
    n = wins + losses
    tail = float(Fraction(sum(math.comb(n, k) for k in range(wins, n + 1)), 2**n))
    assert sign_test(wins, n) == pytest.approx(tail, rel=1e-9)


def test_a_hundred_thousand_differences_are_no_matter() -> None:
    random = Random(8)
    differences = [random.uniform(-1, 1) for _ in range(20_000)]
    assert 0.001 < sign_flip_test(differences) < 0.999
    assert sign_flip_test([difference + 0.02 for difference in differences]) <= 0.001


@pytest.mark.parametrize(
    ("differences", "p"), [([], 1.0), ([0.0, 0.0], 1.0), ([0.4375, 2.2e-308, 2.2e-308], 0.5), ([-0.8125, 1e-12], 1.0)]
)
def test_no_size_is_too_small_or_too_large(differences: list[float], p: float) -> None:
    assert sign_flip_test(differences) == pytest.approx(p, abs=0.02)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_the_order_does_not_count(differences: list[float], random: Random) -> None:
    other = [*differences]
    random.shuffle(other)
    assert sign_flip_test(other) == sign_flip_test(differences)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30))
def test_it_is_a_chance_and_never_zero(differences: list[float]) -> None:
    assert 0 < sign_flip_test(differences) <= 1


@pytest.mark.nightly
@pytest.mark.parametrize(("size", "tiny"), [(17, 0), (200, 0), (200, 190), (1200, 1196)])
def test_it_keeps_its_level(size: int, tiny: int) -> None:
    """Of graded scores, and where few differences are large and all others tiny."""
    random, trials = Random(3), 1000

    def drawn(place: int) -> float:
        return random.choice((-1, 1)) * (0.003 * random.random() if place < tiny else random.random() ** 3)

    found = sum(sign_flip_test([drawn(place) for place in range(size)]) <= 0.05 for _ in range(trials))
    # Three standard errors above the level.
    assert found / trials <= 0.071
