import numpy as np
import pytest

from skillopt_airflow.core.permutation import sign_flip_test
from skillopt_airflow.core.power import smallest_gain
from skillopt_airflow.core.training_groups import EvaluationGroup

RULES = EvaluationGroup(gate_policy="exact_paired")
TRIPLED = RULES.model_copy(update={"draws": 3})


def found(gain: float, items: int, draws: int, different: int) -> float:
    """The share of candidates with the gain that pass; of an item's draws, so many are different ones."""
    random, accepted, trials = np.random.default_rng(5), 0, 400
    for _ in range(trials):
        mine, theirs = (random.binomial(different, chance, items) for chance in ((1 + gain) / 2, (1 - gain) / 2))
        changes = (mine - theirs) / different
        accepted += changes.sum() > 0 and sign_flip_test(changes.tolist()) <= RULES.gate_alpha
    return accepted / trials


@pytest.mark.nightly
@pytest.mark.parametrize("items", [40, 200, 1000])
@pytest.mark.parametrize("alike", [False, True])
def test_the_gain_is_found_in_four_of_five_cases(items: int, alike: bool) -> None:
    gain = smallest_gain(TRIPLED, (1,) * items, alike)
    assert gain is not None
    assert found(gain, items, 3, 1 if alike else 3) == pytest.approx(0.8, abs=0.06)


def test_more_items_and_more_draws_find_smaller_gains() -> None:
    gains = [smallest_gain(each, (1,) * items) or 1.0 for items in (17, 100) for each in (RULES, TRIPLED)]
    single, averaged = gains[::2], gains[1::2]
    assert single == sorted(single, reverse=True)
    assert all(many < one for one, many in zip(single, averaged, strict=True))
    # By the normal approximation (1.645 + 0.842) * sqrt(1/2 / items).
    assert single[1] == pytest.approx(0.176, abs=0.03)
    # Draws that are all alike tell no more than one.
    assert smallest_gain(TRIPLED, (1,) * 100, alike=True) == single[1]


def test_where_no_result_could_pass_no_gain_is_found() -> None:
    assert smallest_gain(RULES, (1,) * 4) is None
    assert smallest_gain(RULES, ()) is None
    assert smallest_gain(RULES, (10,) * 4) is None
    assert smallest_gain(RULES, (1,) * 5) is not None


@pytest.mark.nightly
def test_items_of_a_group_tell_less_than_independent_ones() -> None:
    few, many = (20,) * 30, (1,) * 400
    gain = smallest_gain(RULES, few + many)
    # Of as many items in groups of one it would be 0.06; of the large groups alone 0.37.
    assert gain is not None
    assert 0.1 < gain < 0.35
    # Items that share a toss find what as many items as groups find.
    assert smallest_gain(RULES, (50,) * 20) == smallest_gain(RULES, (1,) * 20)
