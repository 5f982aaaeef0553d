import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.gate.item_scores import covers
from skillopt_airflow.core.gate.paired import interval, paired
from skillopt_airflow.core.gate.policies import Action
from skillopt_airflow.core.run.budget import ModelPrice, Spending
from skillopt_airflow.core.run.skill_matrix import (
    CellResult,
    ComparedSkill,
    Measurement,
    PolicyName,
    RolloutCost,
    SkillInCell,
    SkillMatrix,
)
from skillopt_airflow.core.values.documents import read_document
from skillopt_airflow.core.values.types import RolloutResult, Split, Status
from tests.core.evaluations import evaluation_of

ITEMS = tuple(f"i{index}" for index in range(12))
TARGET = "openai-chat:m"
RULES = st.builds(
    EvaluationGroup,
    gate_metric=st.sampled_from(["hard", "soft", "mixed"]),
    min_coverage=st.sampled_from([0.0, 0.5, 0.95, 1.0]),
)
FAILED = (Status.MODEL_ERROR, Status.TIMEOUT, Status.BUDGET)


def rollout(item: str, status: Status, score: float) -> RolloutResult:
    if status.scored:
        return RolloutResult(item, status, "", 1.0, float(score > 0.5), score)
    return RolloutResult(item, status, f"{status} of {item}", 1.0, None, None)


ROLLOUTS = st.dictionaries(
    st.sampled_from(ITEMS), st.tuples(st.sampled_from([Status.OK, Status.OK, Status.OK, *FAILED]), st.floats(0, 1))
).map(lambda found: [rollout(item, status, score) for item, (status, score) in found.items()])
"""Of each item one rollout or none."""


def measured(rollouts: Sequence[RolloutResult], **cost: Any) -> Measurement:
    failed = [one for one in rollouts if not one.status.scored]
    return Measurement(evaluation_of(ITEMS, rollouts), (), failed, RolloutCost(**cost))


def cell_of(
    measured: Sequence[Measurement], rules: EvaluationGroup, target: str = TARGET, policy: PolicyName | None = None
) -> CellResult:
    skills = tuple(SkillInCell.of(one, measured[0], rules, policy) for one in measured)
    return CellResult(target=target, harness="chat", split=Split.TEST, items=len(ITEMS), skills=skills)


def matrix(cells: Sequence[CellResult]) -> SkillMatrix:
    skills = tuple(ComparedSkill(source=f"skill {n}", sha256=str(n), tokens=10) for n in range(len(cells[0].skills)))
    fields = {"benchmark": "b", "run": "r", "created": datetime(2026, 11, 20, tzinfo=UTC)}
    more = {"metric": "hard", "policy": None, "samples": 1, "min_coverage": 0.95, "spent": Spending()}
    return SkillMatrix.model_validate(fields | more | {"skills": skills, "cells": tuple(cells)})


@given(st.lists(ROLLOUTS, min_size=1, max_size=4), RULES)
def test_each_skill_has_its_own_interval_and_is_paired_with_the_first(
    skills: list[list[RolloutResult]], rules: EvaluationGroup
) -> None:
    measurements = [measured(rollouts) for rollouts in skills]
    first, evaluations = measurements[0].evaluation, [one.evaluation for one in measurements]
    cell = cell_of(measurements, rules)
    for place, (result, evaluation, rollouts) in enumerate(zip(cell.skills, evaluations, skills, strict=True)):
        decided = bool(evaluation.scores) and covers(evaluation, rules)
        assert (result.score is None, result.low is None, result.high is None) == (not decided,) * 3
        if decided:
            assert result.score == evaluation.gate_mean(rules)
            assert (result.low, result.high) == interval(evaluation, rules)
        both = decided and bool(first.scores) and covers(first, rules)
        assert result.against_first == (paired(evaluation, first, rules) if place and both else None)
        # Every item is one of three.
        assert result.items + sum(result.failures.values()) + result.missing == len(ITEMS)
        assert result.items == sum(one.status.scored for one in rollouts)
        assert result.coverage == pytest.approx(result.items / len(ITEMS))


@given(st.lists(st.lists(ROLLOUTS, min_size=2, max_size=2), min_size=1, max_size=3), RULES)
def test_a_stored_matrix_is_the_same_when_it_is_read(
    cells: list[list[list[RolloutResult]]], rules: EvaluationGroup
) -> None:
    made = matrix([cell_of([measured(rollouts) for rollouts in skills], rules) for skills in cells])
    body = json.dumps(made.to_json(), allow_nan=False).encode()
    assert read_document(SkillMatrix, body, "s3://b/k") == made
    rows = list(made.rows())
    assert [(row.cell, row.skill.source) for row in rows] == [
        (cell, skill.source) for cell in made.cells for skill in made.skills
    ]
    assert made.undecided == [row for row in rows if row.result.score is None]


def test_a_cell_without_a_score_tells_what_happened_to_most_of_its_items() -> None:
    refused = [rollout(item, Status.MODEL_ERROR, 0.0) for item in ITEMS[:5]]
    late = [rollout(item, Status.TIMEOUT, 0.0) for item in ITEMS[5:7]]
    scored = [rollout(item, Status.OK, 1.0) for item in ITEMS]
    seed, other = cell_of([measured(scored), measured([*late, *refused])], EvaluationGroup()).skills
    assert (other.score, other.items, other.coverage, other.against_first) == (None, 0, 0.0, None)
    assert other.failures == {Status.MODEL_ERROR: 5, Status.TIMEOUT: 2}
    assert other.missing == 5
    assert str(other.reason).startswith("5 of 12 items: model_error: ")
    assert (seed.score, seed.reason, seed.missing) == (1.0, None, 0)


def test_nothing_is_compared_with_a_first_skill_that_has_too_few_scores() -> None:
    scored = measured([rollout(item, Status.OK, 1.0) for item in ITEMS])
    few = measured([rollout(item, Status.OK, 1.0) for item in ITEMS[:11]])
    assert cell_of([few, scored], EvaluationGroup()).skills[1].against_first is None
    assert cell_of([scored, few], EvaluationGroup(min_coverage=0.9)).skills[1].against_first is not None


def test_tokens_are_those_of_a_rollout() -> None:
    price = ModelPrice(input=1.0, output=10.0, source="test")
    cost = RolloutCost(rollouts=4, calls=5, prompt_tokens=400, completion_tokens=100, usd=price.usd(400, 100))
    assert (cost.tokens, cost.usd) == (125.0, pytest.approx(0.0014))
    assert RolloutCost().tokens is None


def test_a_policy_answers_whether_a_skill_is_better_than_the_first() -> None:
    lost, won = ([rollout(item, Status.OK, score) for item in ITEMS] for score in (0.0, 1.0))
    policies: tuple[PolicyName, ...] = ("strict", "exact_paired")
    for policy in policies:
        cells = [cell_of([measured(lost), measured(won), measured(lost)], EvaluationGroup(), policy=policy)]
        first, better, same = matrix(cells).rows()
        assert first.result.verdict is None
        assert better.result.verdict is not None
        assert better.result.verdict.action.accepted
        assert matrix(cells).not_better == [same]
    # An acceptance by a level must hold whatever the missing items would have said.
    few = measured([*won[:6], *(rollout(item, Status.TIMEOUT, 0.0) for item in ITEMS[6:])])
    [row] = matrix([cell_of([measured(lost), few], EvaluationGroup(), policy="exact_paired")]).not_better
    assert row.result.verdict is not None
    assert row.result.verdict.action is Action.INDECISIVE
    assert matrix([cell_of([measured(lost), measured(lost)], EvaluationGroup())]).not_better == []
