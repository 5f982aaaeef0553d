import pytest

from skillopt_airflow.core.power import smallest_gain
from skillopt_airflow.core.training_groups import EvaluationGroup

RULES = EvaluationGroup(gate_policy="mcnemar")


@pytest.mark.nightly
def test_more_items_and_more_draws_find_smaller_gains() -> None:
    tripled = RULES.model_copy(update={"draws": 3})
    gains = [smallest_gain(each, (1,) * items) or 1.0 for items in (17, 100, 400) for each in (RULES, tripled)]
    single, averaged = gains[::2], gains[1::2]
    assert single == sorted(single, reverse=True)
    assert all(many < one for one, many in zip(single, averaged, strict=True))
    # By the normal approximation (1.645 + 0.842) * sqrt(1/2 / items).
    assert single[1:] == pytest.approx([0.176, 0.088], abs=0.02)


def test_where_no_result_could_pass_no_gain_is_found() -> None:
    assert smallest_gain(RULES, (1,) * 4) is None
    assert smallest_gain(RULES, ()) is None
    assert smallest_gain(RULES, (10,) * 4) is None
    assert smallest_gain(RULES, (1,) * 5) is not None


@pytest.mark.nightly
def test_groups_are_simulated_wherever_they_are_in_the_list() -> None:
    few, many = (20,) * 30, (1,) * 400
    gain = smallest_gain(RULES, few + many)
    assert gain == smallest_gain(RULES, many + few)
    # Of as many items in groups of one it would be 0.06; of the large groups alone 0.37.
    assert gain is not None
    assert 0.1 < gain < 0.35
    # A gate that only the large groups could pass finds a gain, too.
    assert smallest_gain(EvaluationGroup(gate_policy="e_process"), (150,) * 3 + (1,) * 1000) is not None


@pytest.mark.nightly
def test_fresh_draws_are_made_for_a_policy_that_wants_them() -> None:
    confirm = EvaluationGroup(gate_policy="confirm")
    confirmed = smallest_gain(confirm, (1,) * 40)
    assert confirmed is not None
    # Only half of the items differ at first, and are drawn again.
    assert (smallest_gain(RULES, (1,) * 40) or 1.0) < confirmed < 0.6
    # Items that share a toss find what as many items as groups find.
    for rules in (RULES, confirm):
        assert smallest_gain(rules, (50,) * 20) == smallest_gain(rules, (1,) * 20)
