from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.gate.item_scores import Evaluation, ItemScore, Metric
from skillopt_airflow.core.gate.measured_score import MeasuredScore, SplitScore, require_coverage, scores_by_type
from skillopt_airflow.core.values.failure_reasons import FailureReason
from skillopt_airflow.core.values.types import Item, Status, Trajectory
from skillopt_airflow.tasks.record_fields import task_types

SHARE = st.sampled_from([0.0, 0.25, 0.5, 1.0])
SCORES = st.lists(st.builds(ItemScore, hard=SHARE, soft=SHARE), min_size=1, max_size=12)


def evaluation(scores: list[ItemScore], failed: int = 0) -> Evaluation:
    late = [Trajectory(item_id=f"late-{n}", status=Status.TIMEOUT, error="too slow") for n in range(failed)]
    return Evaluation(
        scores={f"i-{n}": score for n, score in enumerate(scores)},
        failures={Status.TIMEOUT: failed},
        reason=FailureReason.of(late, len(scores) + failed),
    )


@given(SCORES, st.sampled_from(["hard", "soft", "mixed"]))
def test_the_interval_is_that_of_the_metric_which_the_gate_compares(scores: list[ItemScore], metric: Metric) -> None:
    rules = EvaluationGroup(gate_metric=metric)
    measured = SplitScore.of(evaluation(scores), rules, version=3)
    assert measured.low <= measured.score <= measured.high
    assert measured.score == pytest.approx({"hard": measured.hard, "soft": measured.soft}.get(metric, measured.score))
    assert (measured.version, measured.coverage) == (3, 1.0)


def test_a_document_keeps_the_fields_that_it_has() -> None:
    class Counted(MeasuredScore):
        items: int

    some = evaluation([ItemScore(hard=1, soft=1), ItemScore(hard=0, soft=0.5)], failed=2)
    assert Counted.of(some, EvaluationGroup()).items == 2
    assert SplitScore.of(some, EvaluationGroup(), version=0).coverage == 0.5


@given(SCORES, st.integers(0, 12), st.sampled_from([0.1, 0.5, 0.95, 1.0]))
def test_too_few_scores_are_refused_with_what_failed(scores: list[ItemScore], failed: int, least: float) -> None:
    some, rules = evaluation(scores, failed), EvaluationGroup(min_coverage=least)
    if some.coverage >= least:
        require_coverage(some, rules, "the seed on val")
        return
    with pytest.raises(DataError, match=rf"the seed on val: .*{failed} of \d+ items: timeout: .*late-0\); clear it"):
        require_coverage(some, rules, "the seed on val", "clear it")


SCORE = st.builds(ItemScore, hard=st.sampled_from([0.0, 1.0]), soft=st.sampled_from([0.25, 0.75]))


@pytest.mark.parametrize(
    ("value", "types"),
    [(["b", "a ", "b"], ("a", "b")), ("sheet", ("sheet",)), (3, ("3",)), (" ", ()), (None, ()), ([{"a": 1}], ())],
)
def test_a_record_names_its_types(value: Any, types: tuple[str, ...]) -> None:
    assert task_types({"kind": value}, "kind") == types
    assert task_types({"kind": value}, "other") == ()
    assert task_types({"about": {"kind": value}}, "about.kind") == types
    assert task_types({"about.kind": value, "about": {"kind": "inner"}}, "about.kind") == types


@given(st.dictionaries(st.sampled_from("abcdefgh"), SCORE), st.sampled_from(["hard", "soft", "mixed"]))
def test_the_types_of_a_partition_have_the_mean_of_all(scores: dict[str, ItemScore], metric: Any) -> None:
    rules, evaluation = EvaluationGroup(gate_metric=metric), Evaluation(scores=scores)
    found = scores_by_type(evaluation, {item: ["early" if item < "d" else "late"] for item in scores}, rules)
    assert [one.task_type for one in found] == sorted({"early" if item < "d" else "late" for item in scores})
    assert sum(one.items for one in found) == len(scores)
    if scores:
        total = sum(one.items * one.score for one in found)
        assert total == pytest.approx(len(scores) * evaluation.gate_mean(rules))


def test_an_item_of_several_types_counts_in_each_and_one_of_none_in_none() -> None:
    one, other = ItemScore(hard=1, soft=1), ItemScore(hard=0, soft=0)
    evaluation = Evaluation(scores={"a": one, "b": other, "c": other})
    found = scores_by_type(evaluation, {"a": ["x", "y"], "b": ["y"], "gone": ["z"]}, EvaluationGroup())
    assert [(one.task_type, one.items, one.score) for one in found] == [("x", 1, 1.0), ("y", 2, 0.5)]
    # They don't change what an item is stored under.
    plain = Item(id="a", public={}, reference={})
    assert plain.model_copy(update={"task_types": ("x",)}).fingerprint == plain.fingerprint
