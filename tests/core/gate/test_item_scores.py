from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.gate.item_scores import (
    Evaluation,
    ItemScore,
    Metric,
    count_groups,
    covers,
    group_values,
    is_failure,
    metric_value,
)
from skillopt_airflow.core.gate.measured_score import MeasuredScore, SplitScore, require_coverage, scores_by_type
from skillopt_airflow.core.values.failure_reasons import FailureReason
from skillopt_airflow.core.values.types import Item, Rollout, RolloutResult, Score, Status, Trajectory
from skillopt_airflow.tasks.record_fields import task_types
from tests.core.evaluations import evaluation_of

FAILED = [status for status in Status if not status.scored]


def rollout(
    item_id: str, hard: float = 0.0, soft: float = 0.0, status: Status = Status.OK, started: float = 0.0
) -> RolloutResult:
    score = Score(hard=hard, soft=soft) if status.scored else None
    return Rollout(trajectory=Trajectory(item_id=item_id, status=status, started=started), score=score).result


@pytest.mark.parametrize("status", Status)
def test_a_rollout_has_a_score_exactly_if_it_was_answered(status: Status) -> None:
    with pytest.raises(ValidationError, match="status"):
        Rollout(
            trajectory=Trajectory(item_id="a", status=status), score=None if status.scored else Score(hard=0, soft=0)
        )


def test_the_failures_are_told_with_their_reason() -> None:
    rows = [rollout(name, status=Status.MODEL_ERROR)._replace(error=f"{name}: who are you") for name in ("a", "b")]
    measured = evaluation_of(["a", "b", "c", "d"], [*rows, rollout("d")])
    assert str(measured.reason).startswith("2 of 4 items: model_error: a: who are you")
    assert "reason" not in measured.model_dump()
    assert evaluation_of(["d"], [rollout("d")]).reason is None
    assert str(evaluation_of(["e"], []).reason).startswith("1 of 1 items: sandbox_error")


def test_failures_and_missing_rollouts_are_no_scores_and_0_is_one() -> None:
    rows = [rollout("a"), *(rollout(status.value, status=status) for status in FAILED), rollout("stranger", 1, 1)]
    measured = evaluation_of(["a", *(status.value for status in FAILED), "never-ran"], rows)
    assert list(measured.scores) == ["a"]
    assert measured.failures == dict.fromkeys(FAILED, 1) | {Status.SANDBOX_ERROR: 2}
    assert measured.size == 2 + len(FAILED)
    assert measured.mean("hard") == 0.0


@pytest.mark.parametrize(
    ("scored", "failed", "covered"), [(19, 1, True), (189, 11, False), (190, 10, True), (1, 199, False), (0, 0, False)]
)
def test_coverage(scored: int, failed: int, covered: bool) -> None:
    scores = {str(index): ItemScore(hard=0, soft=0) for index in range(scored)}
    failures = {Status.MODEL_ERROR: failed} if failed else {}
    found = Evaluation(scores=scores, failures=failures)
    assert covers(found, EvaluationGroup(min_coverage=0.95)) is covered
    assert covers(found, EvaluationGroup(min_coverage=0)) is bool(scored or failed)


def test_metrics() -> None:
    with pytest.raises(DataError, match="scored"):
        Evaluation(scores={}, failures={Status.TIMEOUT: 3}).mean("hard")
    score = ItemScore(hard=1.0, soft=0.5)
    assert metric_value(score, "hard", 0.25) == 1.0
    assert metric_value(score, "soft", 0.25) == 0.5
    assert metric_value(score, "mixed", 0.25) == 0.875
    assert (is_failure(Score(hard=0.99, soft=1)), is_failure(Score(hard=1, soft=0))) == (True, False)


def test_an_item_scores_the_mean_of_its_scored_samples_cut_ones_too() -> None:
    drawn = rollout("a", 1, 0.5, Status.TRUNCATED), rollout("a", 0, 0.25), rollout("a", status=Status.TIMEOUT)
    rows = [*drawn, rollout("b", 1, 1)]
    measured = evaluation_of(["a", "b"], rows)
    assert measured.scores == {"a": ItemScore(hard=0.5, soft=0.375), "b": ItemScore(hard=1, soft=1)}
    assert (measured.failures, measured.coverage) == ({}, 1.0)


@pytest.mark.parametrize("turned", [False, True])
def test_an_item_without_a_scored_sample_failed_as_its_latest_sample_did(turned: bool) -> None:
    rows = [rollout("a", status=Status.TIMEOUT, started=2), rollout("a", status=Status.REFUSED, started=1)]
    measured = evaluation_of(["a"], rows[::-1] if turned else rows)
    assert (measured.scores, measured.failures) == ({}, {Status.TIMEOUT: 1})
    rows.append(rollout("a", 1, 1, started=3))
    lacking = evaluation_of(["a"], rows[::-1] if turned else rows, samples=3)
    assert lacking.failures == {Status.TIMEOUT: 1}


def test_an_item_that_lacks_a_wanted_sample_failed() -> None:
    rows = [
        *(rollout("a", 1, 1), rollout("a", 0, 0.5)),
        *(rollout("b", 1, 1, started=2), rollout("b", status=Status.TIMEOUT, started=1)),
        rollout("c", 1, 1),
    ]
    found = evaluation_of(["a", "b", "c", "d"], rows, samples=2)
    assert found.scores == {"a": ItemScore(hard=0.5, soft=0.75)}
    assert found.failures == {Status.TIMEOUT: 1, Status.SANDBOX_ERROR: 2}
    assert found.coverage == 0.25


STARTED = st.sampled_from([0.0, 1.0])
ROWS = st.builds(rollout, st.sampled_from("abc"), st.floats(0, 1), st.floats(0, 1), st.sampled_from(Status), STARTED)


@given(st.lists(ROWS, max_size=12), st.randoms(use_true_random=False))
def test_samples_in_any_order_are_the_same_evaluation(rows: list[RolloutResult], random: object) -> None:
    measured = evaluation_of("abc", rows)
    random.shuffle(rows)  # type: ignore[attr-defined]
    assert evaluation_of("abc", rows).model_dump_json() == measured.model_dump_json()
    assert evaluation_of("cab", rows) == measured
    assert measured.size == 3


def test_cancelled_items_are_missing_but_no_failures() -> None:
    ran = evaluation_of(["a", "b"], [rollout("a", 1, 1)])
    measured = ran.model_copy(update={"cancelled": 2})
    assert (measured.size, measured.cancelled, measured.coverage) == (4, 2, 0.25)
    assert measured.failures == {Status.SANDBOX_ERROR: 1}
    assert not covers(measured, EvaluationGroup(min_coverage=0.26))
    assert covers(measured, EvaluationGroup(min_coverage=0.25))


def test_an_evaluation_knows_the_groups_of_its_items_scored_or_not() -> None:
    measured = evaluation_of(["a", "b", "c"], [rollout("a")], groups={"a": "x", "b": "x"})
    assert measured.groups == {"a": "x", "b": "x"}
    assert evaluation_of(["a"], [rollout("a")]).groups == {}


def test_an_item_without_a_group_is_one_of_its_own_even_if_it_is_called_like_one() -> None:
    values = {"a": 1.0, "b": 2.0, "c": 4.0, "d": 8.0}
    groups = {"b": "a", "c": "x", "d": "x", "z": "x", "e": ""}
    assert group_values(values, groups) == [[1.0], [2.0], [4.0, 8.0]]
    assert [sum(found) for found in group_values(values, groups)] == [1.0, 2.0, 12.0]
    assert group_values(values, {}) == [[1.0], [2.0], [4.0], [8.0]]
    assert group_values({}, groups) == []
    assert count_groups(["", "x", "x", "y", ""]) == 4
    assert count_groups(["", ""]) is count_groups([]) is None


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
