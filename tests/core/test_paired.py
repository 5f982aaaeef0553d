import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.config import EvaluationGroup
from skillopt_airflow.core.item_scores import Evaluation, ItemScore
from skillopt_airflow.core.paired import SAME_MEAN, PairedTable, differences, interval, paired, signs, standard_error

RULES = EvaluationGroup()
SOFT = EvaluationGroup(gate_metric="soft")
SCORES = st.dictionaries(
    st.sampled_from([f"i{index}" for index in range(12)]),
    st.builds(ItemScore, hard=st.sampled_from([0.0, 0.5, 1.0]), soft=st.floats(0, 1)),
)
EVALUATIONS = st.builds(Evaluation, scores=SCORES)
GATES = st.builds(
    EvaluationGroup, gate_metric=st.sampled_from(["hard", "soft", "mixed"]), gate_mixed_weight=st.floats(0, 1)
)


def measured(*values: float) -> Evaluation:
    return Evaluation(scores={f"i{index}": ItemScore(hard=value, soft=value) for index, value in enumerate(values)})


@given(EVALUATIONS, EVALUATIONS, GATES)
def test_two_skills_cannot_both_beat_each_other(one: Evaluation, other: Evaluation, rules: EvaluationGroup) -> None:
    forth, back = paired(one, other, rules), paired(other, one, rules)
    assert (forth.wins, forth.losses, forth.ties) == (back.losses, back.wins, back.ties)
    assert (forth.score, forth.other_score) == (back.other_score, back.score)
    assert (forth.delta, forth.low, forth.high) == (-back.delta, -back.high, -back.low)
    assert not (forth.better and back.better)


@given(EVALUATIONS, EVALUATIONS, GATES)
def test_the_interval_holds_delta_and_possible_differences(
    one: Evaluation, other: Evaluation, rules: EvaluationGroup
) -> None:
    table = paired(one, other, rules)
    changes = differences(one, other, rules)
    assert list(changes) == sorted(one.scores.keys() & other.scores.keys())
    assert table.pairs == len(changes)
    assert -1 <= table.low <= table.delta <= table.high <= 1
    if changes:
        assert table.delta == pytest.approx(math.fsum(changes.values()) / len(changes), abs=1e-14)


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_pairs_say_nothing(count: int) -> None:
    table = paired(measured(*[1] * count), measured(*[0] * count), RULES)
    assert (table.pairs, table.delta, table.low, table.high) == (count, count, -1, 1)
    assert standard_error([[0.5]] * count) is None


def test_the_interval_is_students() -> None:
    # 10 differences: 4 wins, 1 loss; mean 0.3, standard deviation 0.674949, t of 9 degrees 2.262157.
    table = paired(measured(1, 1, 1, 1, 0, *[1] * 5), measured(0, 0, 0, 0, 1, *[1] * 5), RULES)
    assert (table.wins, table.losses, table.ties) == (4, 1, 5)
    assert (table.low, table.high) == pytest.approx((-0.182829, 0.782829), abs=1e-6)


def test_two_items_of_draws_are_two_observations() -> None:
    table = paired(measured(0.75, 0.5), measured(0.25, 0.5), SOFT)
    assert (table.wins, table.losses, table.ties) == (1, 0, 1)
    assert (table.delta, table.low, table.high) == (0.25, -1, 1)
    assert standard_error([[0.5], [0.0]]) == 0.25


def test_a_group_counts_as_what_it_adds_to_the_sum() -> None:
    # Sums 2, 0, -1 of groups of 2, 2, 1 about a mean of 0.2: deviations 1.6, -0.4, -1.2.
    found = standard_error([[1.0, 1.0], [1.0, -1.0], [-1.0]])
    assert found == pytest.approx(math.sqrt((1.6**2 + 0.4**2 + 1.2**2) * 3 / 2) / 5)
    assert standard_error([[1.0, 0.0, 1.0]]) is None


@pytest.mark.parametrize(
    ("count", "difference", "low", "high"),
    # 1 - 0.05^(1/n) of all items may be unlike the n that were seen: 0.776 of 2, 0.0722 of 40.
    [(2, 0.25, 0.25 - 0.7764 * 1.25, 0.25 + 0.7764 * 0.75), (40, 0.0, -0.0722, 0.0722), (40, 1.0, 1 - 2 * 0.0722, 1.0)],
)
def test_equal_differences_are_no_certainty(count: int, difference: float, low: float, high: float) -> None:
    table = paired(measured(*[difference] * count), measured(*[0.0] * count), SOFT)
    assert table.delta == difference
    assert (table.low, table.high) == (pytest.approx(low, abs=1e-3), pytest.approx(high, abs=1e-3))


def test_differences_that_only_rounding_tells_apart_are_equal() -> None:
    candidate, current = measured(1, 2 / 3, 1 / 3), measured(2 / 3, 1 / 3, 0)
    assert standard_error([[change] for change in differences(candidate, current, SOFT).values()]) != 0.0
    table = paired(candidate, current, SOFT)
    # 1 - 0.05^(1/3) = 0.6316.
    assert (table.low, table.high) == (pytest.approx(1 / 3 - 0.6316 * 4 / 3, abs=1e-4), pytest.approx(0.7544, abs=1e-4))


@pytest.mark.parametrize(("delta", "better"), [(SAME_MEAN, False), (2 * SAME_MEAN, True), (0.0, False), (-0.1, False)])
def test_a_rounding_error_is_a_tie(delta: float, better: bool) -> None:
    table = PairedTable(wins=1, losses=0, ties=0, score=0.5 + delta, other_score=0.5, delta=delta, low=-1, high=1)
    assert table.better is better


def test_signs_look_through_rounding() -> None:
    assert signs([SAME_MEAN, -SAME_MEAN, 0.0]) == (0, 0)
    assert signs([2 * SAME_MEAN, 0.25, -2 * SAME_MEAN]) == (2, 1)


@given(EVALUATIONS, GATES)
def test_an_interval_of_a_mean_holds_it_and_stays_in_range(evaluation: Evaluation, rules: EvaluationGroup) -> None:
    low, high = interval(evaluation, rules)
    assert 0 <= low < high <= 1
    if evaluation.scores:
        mean = evaluation.mean(rules.gate_metric, rules.gate_mixed_weight)
        assert low <= min(1.0, mean) <= high


def test_intervals_of_0_1_scores_are_wilsons() -> None:
    assert interval(measured(*[1] * 4, *[0] * 6), RULES) == pytest.approx((0.168180, 0.687326), abs=1e-6)
    assert interval(measured(*[1] * 10), RULES) == pytest.approx((0.722467, 1), abs=1e-6)
    assert interval(measured(*[0] * 10), RULES) == pytest.approx((0, 0.277533), abs=1e-6)


def test_an_evaluation_that_was_cut_short_has_no_interval() -> None:
    assert interval(measured(1, 1, 1).model_copy(update={"cancelled": 1}), RULES) == (0, 1)
    assert interval(measured(), RULES) == (0, 1)


def test_intervals_hold_the_true_mean_often_enough() -> None:
    random = Random(7)
    kinds = {
        "coins": (lambda: float(random.random() < 0.7), 0.7),
        "graded": (random.random, 0.5),
        "skewed": (lambda: random.random() ** 4, 0.2),
        "draws": (lambda: sum(random.random() < 0.3 for _ in range(3)) / 3, 0.3),
    }
    for kind, (draw, mean) in kinds.items():
        for size in (17, 60):
            trials = [interval(measured(*(draw() for _ in range(size))), SOFT) for _ in range(400)]
            held = sum(low <= mean <= high for low, high in trials) / len(trials)
            print(f"{kind}, {size} items: {held:.3f} of the 95 % intervals hold the mean")
            assert held >= 0.93


def test_intervals_of_a_difference_hold_the_true_one_often_enough() -> None:
    random = Random(8)
    held = 0
    for _ in range(400):
        candidate, current = ([float(random.random() < p) for _ in range(40)] for p in (0.6, 0.5))
        table = paired(measured(*candidate), measured(*current), RULES)
        held += table.low <= 0.1 <= table.high
    assert held / 400 >= 0.93
