from hypothesis import given

from skillopt_airflow.core.documents import read_document
from skillopt_airflow.core.gate import Action, GateDecision, decide, reject_screened
from skillopt_airflow.core.item_scores import Evaluation
from skillopt_airflow.core.screening import screened
from skillopt_airflow.core.training_groups import EvaluationGroup
from skillopt_airflow.store.objects import model_bytes
from tests.core.evaluations import EVALUATIONS, GATES, measured

RULES = EvaluationGroup(screen="batch")


def test_what_is_worse_on_the_batch_goes_no_further_and_a_tie_does() -> None:
    current = measured(1, 0, 1, 0)
    assert screened("s", measured(1, 1, 1, 0), current, RULES).passed
    assert screened("s", measured(0, 1, 1, 0), current, RULES).passed
    found = screened("s", measured(0, 0, 1, 0), current, RULES)
    assert not found.passed
    assert (found.items, found.against_current.losses, found.against_current.pairs) == (4, 1, 4)
    decision = reject_screened(found, Evaluation(scores={}, cancelled=7), current, current, RULES)
    assert "batch of 4 items, current 0.5000, candidate 0.2500" in decision.reason
    assert "screen" not in decide(measured(1), measured(0), measured(0), RULES).to_json()
    # In the metric of the gate.
    current, candidate = measured(1, 0.0), measured(0.9, 0.9)
    assert not screened("s", candidate, current, RULES).passed
    assert screened("s", candidate, current, EvaluationGroup(gate_metric="soft")).passed


def test_too_few_items_with_both_scores_decide_nothing() -> None:
    rules = EvaluationGroup(min_coverage=0.75)
    worse = [0.0] * 4
    assert not screened("s", measured(*worse[:3], failed=1), measured(1, 1, 1, 1), rules).passed
    assert screened("s", measured(*worse[:2], failed=2), measured(1, 1, 1, 1), rules).passed
    assert screened("s", measured(*worse), measured(1, 1, failed=2), rules).passed
    assert screened("s", measured(failed=4), measured(failed=4), RULES).passed


@given(EVALUATIONS, EVALUATIONS, GATES)
def test_a_batch_as_large_as_the_selection_split_loses_no_candidate(
    candidate: Evaluation, current: Evaluation, rules: EvaluationGroup
) -> None:
    found = screened("s", candidate, current, rules)
    assert read_document(type(found), model_bytes(found), "here") == found
    if not found.passed:
        assert not decide(candidate, current, current, rules).action.accepted


@given(EVALUATIONS, EVALUATIONS, EVALUATIONS, GATES)
def test_a_screened_candidate_is_rejected_without_a_score_on_the_selection_split(
    candidate: Evaluation, current: Evaluation, best: Evaluation, rules: EvaluationGroup
) -> None:
    found = screened("s", candidate, current, rules)
    decision = reject_screened(found, Evaluation(scores={}, cancelled=7), current, best, rules)
    assert decision.action is Action.REJECT
    assert (decision.coverage, decision.against_current.pairs, decision.against_best.pairs) == (0.0, 0, 0)
    assert decision.screened_out == (None if found.passed else found.against_current)
    assert GateDecision.model_validate_json(decision.model_dump_json()) == decision
