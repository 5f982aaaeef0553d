from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.config.training_groups import GATE_POLICIES, EvaluationGroup
from skillopt_airflow.core.gate.decision import Action, GateDecision, decide
from skillopt_airflow.core.gate.item_scores import Evaluation, ItemScore
from skillopt_airflow.core.values import skill as skill_module
from skillopt_airflow.core.values.skill import SkillDocument
from tests.core.evaluations import EVALUATIONS, GATES, measured

RULES = EvaluationGroup()
SOFT = EvaluationGroup(gate_metric="soft")


@given(EVALUATIONS, EVALUATIONS, EVALUATIONS, GATES)
def test_accepted_is_only_what_is_strictly_better_and_covered(
    candidate: Evaluation, current: Evaluation, best: Evaluation, rules: EvaluationGroup
) -> None:
    decision = decide(candidate, current, best, rules)
    table = decision.against_current
    if decision.action.accepted:
        assert table.score > table.other_score
        assert table.wins > 0
    if decision.action == Action.ACCEPT_NEW_BEST:
        assert decision.against_best.score > decision.against_best.other_score
    if candidate.coverage < rules.min_coverage or not table.pairs:
        assert decision.action == Action.INDECISIVE
    elif not table.better:
        assert decision.action == Action.REJECT
    elif rules.gate_policy == "strict":
        assert decision.action.accepted
    assert GateDecision.model_validate_json(decision.model_dump_json()) == decision


@given(
    st.lists(st.floats(0, 1), min_size=2, max_size=40),
    st.randoms(use_true_random=False),
    st.sampled_from(sorted(GATE_POLICIES)),
)
def test_equal_scores_in_another_order_are_a_tie(values: list[float], random: object, policy: str) -> None:
    other = [*values]
    random.shuffle(other)  # type: ignore[attr-defined]
    rules = SOFT.model_copy(update={"gate_policy": policy})
    assert decide(measured(*values), measured(*other), measured(*other), rules).action == Action.REJECT


FRACTIONS = st.builds(Fraction, st.integers(0, 30), st.integers(30, 60))


@pytest.mark.nightly
@given(st.lists(st.tuples(FRACTIONS, FRACTIONS), min_size=1, max_size=40))
def test_sums_that_are_equal_as_fractions_are_a_tie(values: list[tuple[Fraction, Fraction]]) -> None:
    # a + b on the one side, (a + b)/2 twice on the other: equal sums of values that floats round apart.
    one = [float(value) for pair in values for value in pair]
    other = [float((a + b) / 2) for a, b in values for _ in range(2)]
    for candidate, current in ((one, other), (other, one)):
        assert decide(measured(*candidate), measured(*current), measured(*current), SOFT).action == Action.REJECT
    # But one token in a large split is a win.
    current = [0.5] * 2000
    candidate = [*current[1:], 0.51]
    assert decide(measured(*candidate), measured(*current), measured(*current), SOFT).action.accepted


def test_failures_of_the_sandbox_decide_nothing() -> None:
    candidate = measured(1, failed=191).model_copy(update={"cancelled": 8})
    decision = decide(candidate, measured(*[0] * 200), measured(*[0] * 200), RULES)
    assert decision.action == Action.INDECISIVE
    assert decision.reason == "coverage 0.005 is below 0.95 (191 timeout, 8 cancelled)"
    # And without a common item the reason isn't the coverage.
    other = Evaluation(scores={"z": ItemScore(hard=0, soft=0)})
    decision = decide(measured(1, 1), other, other, RULES)
    assert decision.action == Action.INDECISIVE
    assert "both skills" in decision.reason
    # A missing item favors neither.
    decision = decide(measured(*[1] * 19, failed=1), measured(*[1] * 19, 0), measured(*[1] * 19, 0), RULES)
    assert decision.action == Action.REJECT
    assert decision.against_current.pairs == 19


def gate(policy: str, **knobs: object) -> EvaluationGroup:
    return EvaluationGroup.model_validate({"gate_policy": policy, **knobs})


def test_the_decision_says_what_the_policy_found() -> None:
    assert {action for action in Action if action.accepted} == {Action.ACCEPT, Action.ACCEPT_NEW_BEST}
    candidate, current = measured(*[1] * 6), measured(*[0] * 5, 1)
    decision = decide(candidate, current, current, gate("exact_paired"))
    assert (decision.policy, decision.statistic, decision.bound) == ("exact_paired", 1 / 32, None)
    assert decision.action == Action.ACCEPT_NEW_BEST
    decision = decide(candidate, current, measured(*[1] * 6), gate("exact_paired"))
    assert decision.action == Action.ACCEPT
    assert "p = 0.03125 of 5 wins" in decision.reason


@pytest.mark.parametrize(("rules", "force"), [(RULES, True), (EvaluationGroup(use_gate=False), False)])
def test_without_the_gate_a_candidate_is_taken_and_measured(rules: EvaluationGroup, force: bool) -> None:
    worse = decide(measured(0, 0), measured(1, 0), measured(1, 0), rules, force=force)
    assert worse.action == Action.ACCEPT
    assert "which says reject: 0.0000" in worse.reason
    assert (worse.against_current.losses, worse.coverage) == (1, 1.0)
    better = decide(measured(1, 1), measured(1, 0), measured(1, 0), rules, force=force)
    assert better.action == Action.ACCEPT_NEW_BEST
    assert "which says accept_new_best: 1.0000" in better.reason
    as_good_as_best = decide(measured(1, 1), measured(1, 0), measured(1, 1), rules, force=force)
    assert as_good_as_best.action == Action.ACCEPT
    # Better than best, though the policy would want more.
    strict = rules.model_copy(update={"gate_policy": "exact_paired"})
    taken = decide(measured(1, 1), measured(0, 1), measured(1, 0), strict, force=force)
    assert taken.action == Action.ACCEPT_NEW_BEST
    assert "which says underpowered: 1 wins and 0 losses" in taken.reason


@pytest.mark.parametrize("force", [True, False])
def test_what_is_taken_with_too_few_scores_is_never_best(force: bool) -> None:
    decision = decide(measured(1, failed=1), measured(0, 0), measured(0, 0), RULES, force=force)
    assert decision.action == (Action.ACCEPT if force else Action.INDECISIVE)
    assert "coverage 0.500 is below 0.95 (1 timeout)" in decision.reason


class TestMissingItems:
    """An acceptance also stands if the items are lost that only the candidate has no score for."""

    OTHER = measured(*[0] * 5, *[1] * 35)

    def test_it_decides_nothing_otherwise(self) -> None:
        candidate = measured(*[1] * 38, failed=2)
        rules = gate("exact_paired", gate_alpha=0.1)
        decision = decide(candidate, self.OTHER, self.OTHER, rules)
        assert decision.action == Action.INDECISIVE
        assert "but 2 items have a score under" in decision.reason
        assert decision.against_current.pairs == 38
        assert decide(measured(*[1] * 40), self.OTHER, self.OTHER, rules).action == Action.ACCEPT_NEW_BEST

    def test_strict_looks_at_what_is_there(self) -> None:
        candidate, other = measured(*[1] * 39, failed=1), measured(*[0], *[1] * 39)
        assert decide(candidate, other, other, RULES).action == Action.ACCEPT_NEW_BEST

    def test_what_the_current_skill_fails_or_misses_is_no_loss_and_many_wins_stand(self) -> None:
        candidate = measured(*[1] * 38, failed=2)
        failing = measured(*[0] * 5, *[1] * 33, 0, 0)
        lacking = measured(*[0] * 5, *[1] * 33, failed=2)
        for other in (failing, lacking, measured(*[0] * 12, *[1] * 28)):
            assert decide(candidate, other, other, gate("exact_paired")).action == Action.ACCEPT_NEW_BEST


SHORT, LONG = SkillDocument("Be brief."), SkillDocument("Be as long as you like. " * 400)


def test_density_has_a_say_in_what_is_best_and_none_in_what_is_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = EvaluationGroup()
    monkeypatch.setattr(skill_module, "DENSITY_WEIGHT", 0.3)
    better, current, best = measured(1, 1, 0, 0, 0), measured(1, 0, 0, 0, 0), measured(1, 1, 1, 0, 0)
    plain, dense = (decide(better, current, best, rules), decide(better, current, best, rules, skills=(SHORT, LONG)))
    assert (plain.action, dense.action) == (Action.ACCEPT, Action.ACCEPT_NEW_BEST)
    assert "best by density" in dense.reason
    assert dense.weighed is not None
    assert dense.weighed[0] > dense.weighed[1]
    assert plain.weighed is None
    longer = decide(best, current, better, rules, skills=(LONG, SHORT))
    assert (longer.action, decide(best, current, better, rules).action) == (Action.ACCEPT, Action.ACCEPT_NEW_BEST)
    assert decide(current, better, better, rules, skills=(SHORT, LONG)).action is Action.REJECT
