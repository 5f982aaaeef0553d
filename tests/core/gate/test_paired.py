import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.gate.item_scores import Evaluation
from skillopt_airflow.core.gate.paired import (
    SAME_MEAN,
    PairedTable,
    difference_interval,
    differences,
    interval,
    paired,
    score_interval,
    signs,
)
from tests.core.evaluations import EVALUATIONS, GATES, measured

RULES = EvaluationGroup()
SOFT = EvaluationGroup(gate_metric="soft")


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
    # Two items of samples are two observations.
    table = paired(measured(0.75, 0.5), measured(0.25, 0.5), SOFT)
    assert (table.wins, table.losses, table.ties) == (1, 0, 1)
    assert table.delta == 0.25
    assert (table.low, table.high) == difference_interval([[0.5], [0.0]])


def test_the_items_of_a_group_are_one_observation() -> None:
    candidate, current = measured(1, 1, 0, 1, 1), measured(0, 0, 1, 1, 0)
    groups = {"i0": "a", "i1": "a", "i2": "b", "i3": "b"}
    table = paired(candidate.model_copy(update={"groups": groups}), current, RULES)
    # i4 has no group, and is one of its own.
    assert (table.low, table.high) == difference_interval([[1.0, 1.0], [-1.0, 0.0], [1.0]])
    assert (table.wins, table.losses, table.ties, table.groups) == (3, 1, 1, 3)
    assert table == paired(candidate, current.model_copy(update={"groups": groups}), RULES)
    assert paired(candidate, current, RULES).groups is None
    alone = candidate.model_copy(update={"groups": groups})
    assert interval(alone, RULES) == score_interval([[1.0, 1.0], [0.0, 1.0], [1.0]])


def test_signs_and_means_look_through_rounding() -> None:
    for delta, better in ((SAME_MEAN, False), (2 * SAME_MEAN, True), (-0.1, False)):
        table = PairedTable(wins=1, losses=0, ties=0, score=0.5 + delta, other_score=0.5, delta=delta, low=-1, high=1)
        assert table.better is better
    assert signs([SAME_MEAN, -SAME_MEAN, 0.0]) == (0, 0)
    assert signs([2 * SAME_MEAN, 0.25, -2 * SAME_MEAN]) == (2, 1)


@given(EVALUATIONS, GATES)
def test_an_interval_of_a_mean_holds_it_and_stays_in_range(evaluation: Evaluation, rules: EvaluationGroup) -> None:
    low, high = interval(evaluation, rules)
    assert 0 <= low < high <= 1
    if evaluation.scores:
        mean = evaluation.mean(rules.gate_metric, rules.gate_mixed_weight)
        assert low <= min(1.0, mean) <= high
    # One that was cut short has none.
    assert interval(evaluation.model_copy(update={"cancelled": 1}), RULES) == (0, 1)


GROUPS = st.integers(1, 4).flatmap(lambda size: st.lists(st.lists(st.floats(-1, 1), min_size=1, max_size=size)))


def alone(values: list[float]) -> list[list[float]]:
    return [[value] for value in values]


def mean(groups: list[list[float]]) -> float:
    return math.fsum(value for group in groups for value in group) / sum(map(len, groups))


@given(GROUPS)
def test_an_interval_holds_what_was_seen_and_stays_in_range(groups: list[list[float]]) -> None:
    low, high = difference_interval(groups)
    assert -1 <= low < high <= 1
    if groups:
        assert low <= mean(groups) <= high
    forth, back = difference_interval(groups), difference_interval([[-value for value in group] for group in groups])
    assert forth == (-back[1], -back[0])
    scores = [[abs(value) for value in group] for group in groups]
    low, high = score_interval(scores)
    assert 0 <= low < high <= 1
    if scores:
        assert low - 1e-12 <= mean(scores) <= high + 1e-12


def test_of_wins_and_losses_it_is_bonett_and_prices_with_the_variance_of_a_sample() -> None:
    # 4 wins and 1 loss of 10, and one more of each: 5/12 and 2/12, a spread of 7/12 - (3/12)^2 over 11 where theirs has
    # 12.
    error = math.sqrt((7 / 12 - 9 / 144) / 11)
    expected = 0.25 - 1.959964 * error, 0.25 + 1.959964 * error
    assert difference_interval(alone([1.0] * 4 + [-1.0] + [0.0] * 5)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("items", "reach"), [(17, 0.15), (40, 0.067), (1000, 0.0028)])
def test_equal_outcomes_are_no_certainty(items: int, reach: float) -> None:
    assert difference_interval(alone([0.0] * items)) == pytest.approx((-reach, reach), rel=0.02)
    low, high = difference_interval(alone([1.0] * items))
    assert 1 - 4 * reach < low < 1 - reach / 2
    assert high == 1


def test_of_single_hard_scores_it_is_wilsons() -> None:
    assert score_interval(alone([1.0] * 4 + [0.0] * 6)) == pytest.approx((0.168180, 0.687326), abs=1e-6)
    assert score_interval(alone([1.0] * 10)) == pytest.approx((0.722467, 1), abs=1e-6)
    assert score_interval(alone([0.0] * 10)) == pytest.approx((0, 0.277533), abs=1e-6)
    assert score_interval([]) == (0, 1)
    # One group says nothing.
    assert difference_interval([]) == difference_interval([[0.5]]) == difference_interval([[1.0, -1.0, 0.5]]) == (-1, 1)


def test_what_hangs_together_is_wider_and_what_was_averaged_narrower() -> None:
    single = score_interval(alone([1.0, 0.0] * 20))
    averaged = score_interval(alone([0.6, 0.4] * 20))
    assert averaged[1] - averaged[0] < 0.5 * (single[1] - single[0])
    alike = score_interval([[1.0] * 4, [0.0] * 4] * 5)
    assert alike[1] - alike[0] > 1.5 * (single[1] - single[0])
    changes = [1.0, 0.0] * 20
    together = difference_interval([[1.0] * 4, [0.0] * 4] * 5)
    assert together[1] - together[0] > 1.5 * (
        difference_interval(alone(changes))[1] - difference_interval(alone(changes))[0]
    )
