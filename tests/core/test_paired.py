import math

import pytest
from hypothesis import given

from skillopt_airflow.core import intervals
from skillopt_airflow.core.item_scores import Evaluation
from skillopt_airflow.core.paired import SAME_MEAN, PairedTable, differences, interval, paired, signs
from skillopt_airflow.core.training_groups import EvaluationGroup
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
    # Two items of draws are two observations.
    table = paired(measured(0.75, 0.5), measured(0.25, 0.5), SOFT)
    assert (table.wins, table.losses, table.ties) == (1, 0, 1)
    assert table.delta == 0.25
    assert (table.low, table.high) == intervals.of_difference([[0.5], [0.0]])


def test_the_items_of_a_group_are_one_observation() -> None:
    candidate, current = measured(1, 1, 0, 1, 1), measured(0, 0, 1, 1, 0)
    groups = {"i0": "a", "i1": "a", "i2": "b", "i3": "b"}
    table = paired(candidate.model_copy(update={"groups": groups}), current, RULES)
    # i4 has no group, and is one of its own.
    assert (table.low, table.high) == intervals.of_difference([[1.0, 1.0], [-1.0, 0.0], [1.0]])
    assert (table.wins, table.losses, table.ties, table.groups) == (3, 1, 1, 3)
    assert table == paired(candidate, current.model_copy(update={"groups": groups}), RULES)
    assert paired(candidate, current, RULES).groups is None
    alone = candidate.model_copy(update={"groups": groups})
    assert interval(alone, RULES) == intervals.of_score([[1.0, 1.0], [0.0, 1.0], [1.0]])


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
