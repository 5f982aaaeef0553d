from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from include.core.config import EvaluationGroup
from include.core.gate import Action, decide, paired
from include.core.scoring import Evaluation, ItemScore
from include.core.types import Status

RULES = EvaluationGroup()
SOFT = EvaluationGroup(gate_metric="soft")
SCORES = st.dictionaries(
    st.sampled_from([f"i{index}" for index in range(12)]),
    st.builds(ItemScore, hard=st.sampled_from([0.0, 1.0]), soft=st.floats(0, 1)),
)
EVALUATIONS = st.builds(
    Evaluation, scores=SCORES, failures=st.dictionaries(st.sampled_from([Status.TIMEOUT]), st.integers(1, 5))
)
GATES = st.builds(
    EvaluationGroup,
    gate_metric=st.sampled_from(["hard", "soft", "mixed"]),
    gate_mixed_weight=st.floats(0, 1),
    min_coverage=st.floats(0, 1),
)


def measured(*values: float, failed: int = 0) -> Evaluation:
    scores = {f"i{index}": ItemScore(hard=round(value), soft=value) for index, value in enumerate(values)}
    return Evaluation(scores=scores, failures={Status.TIMEOUT: failed} if failed else {})


@pytest.mark.parametrize(
    ("candidate", "current", "best", "action"),
    [
        ((1, 1), (1, 0), (1, 0), Action.ACCEPT_NEW_BEST),
        ((1, 1, 0), (1, 0, 0), (1, 0, 1), Action.ACCEPT),
        ((1, 0), (1, 0), (1, 0), Action.REJECT),
        ((0, 1), (1, 0), (1, 0), Action.REJECT),
        ((0, 0), (0, 0), (0, 0), Action.REJECT),
        ((1, 0), (0, 0), (0, 0), Action.ACCEPT_NEW_BEST),
        ((0, 0), (1, 0), (1, 0), Action.REJECT),
    ],
)
def test_verdicts(candidate: tuple[float], current: tuple[float], best: tuple[float], action: Action) -> None:
    decision = decide(measured(*candidate), measured(*current), measured(*best), RULES)
    assert decision.action == action
    assert action.accepted == (action in {"accept", "accept_new_best"})
    assert decision.against_current.score == sum(candidate) / len(candidate)


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
    else:
        assert decision.action != Action.INDECISIVE


@given(EVALUATIONS, EVALUATIONS, GATES)
def test_a_skill_never_wins_against_itself(candidate: Evaluation, best: Evaluation, rules: EvaluationGroup) -> None:
    assert not decide(candidate, candidate, best, rules).action.accepted


@given(EVALUATIONS, EVALUATIONS, GATES)
def test_two_skills_cannot_both_beat_each_other(one: Evaluation, other: Evaluation, rules: EvaluationGroup) -> None:
    forth, back = paired(one, other, rules), paired(other, one, rules)
    assert (forth.wins, forth.losses, forth.ties) == (back.losses, back.wins, back.ties)
    assert (forth.score, forth.other_score) == (back.other_score, back.score)


@given(st.lists(st.floats(0, 1), min_size=2, max_size=40), st.randoms(use_true_random=False))
def test_equal_scores_in_another_order_are_a_tie(values: list[float], random: object) -> None:
    other = [*values]
    random.shuffle(other)  # type: ignore[attr-defined]
    assert decide(measured(*values), measured(*other), measured(*other), SOFT).action == Action.REJECT


FRACTIONS = st.builds(Fraction, st.integers(0, 30), st.integers(30, 60))


@given(st.lists(st.tuples(FRACTIONS, FRACTIONS), min_size=1, max_size=40))
def test_sums_that_are_equal_as_fractions_are_a_tie(values: list[tuple[Fraction, Fraction]]) -> None:
    # a + b on the one side, (a + b)/2 twice on the other: equal sums of values that floats round apart.
    one = [float(value) for pair in values for value in pair]
    other = [float((a + b) / 2) for a, b in values for _ in range(2)]
    for candidate, current in ((one, other), (other, one)):
        assert decide(measured(*candidate), measured(*current), measured(*current), SOFT).action == Action.REJECT


def test_a_tie_of_token_f1_scores_is_no_win() -> None:
    one = [10 / 11, 6 / 13, 1 / 5, 3 / 5, 8 / 11]
    other = [2 / 5, 8 / 11, 2 / 5, 6 / 13, 10 / 11]
    assert sum(map(Fraction, ["10/11", "6/13", "1/5", "3/5"])) == sum(map(Fraction, ["2/5", "2/5", "6/13", "10/11"]))
    for candidate, current in ((one, other), (other, one)):
        assert decide(measured(*candidate), measured(*current), measured(*current), SOFT).action == Action.REJECT


def test_one_token_in_a_large_split_is_a_win() -> None:
    current = [0.5] * 2000
    candidate = [*current[1:], 0.51]
    assert decide(measured(*candidate), measured(*current), measured(*current), SOFT).action.accepted


def test_failures_of_the_sandbox_decide_nothing() -> None:
    decision = decide(measured(1, failed=199), measured(*[0] * 200), measured(*[0] * 200), RULES)
    assert decision.action == Action.INDECISIVE
    assert decision.reason == "coverage 0.005 is below 0.95 (199 timeout)"


def test_a_missing_item_favours_neither() -> None:
    decision = decide(measured(*[1] * 19, failed=1), measured(*[1] * 19, 0), measured(*[1] * 19, 0), RULES)
    assert decision.action == Action.REJECT
    assert decision.against_current.pairs == 19


def test_without_a_common_item_the_reason_is_not_the_coverage() -> None:
    other = Evaluation(scores={"z": ItemScore(hard=0, soft=0)})
    decision = decide(measured(1, 1), other, other, RULES)
    assert decision.action == Action.INDECISIVE
    assert decision.reason == "no item has a score under both skills"
