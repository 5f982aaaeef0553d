import math
from fractions import Fraction
from itertools import product
from math import comb
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.config.training_groups import GATE_POLICIES, EvaluationGroup
from skillopt_airflow.core.gate.decision import GateDecision, decide, judge, unknown_protected_items
from skillopt_airflow.core.gate.item_scores import Evaluation
from skillopt_airflow.core.gate.paired import SAME_MEAN
from skillopt_airflow.core.gate.policies import FLIPS, Action, Evidence, Verdict, sign_flip_test, sign_test
from skillopt_airflow.core.values.types import Rollout, RolloutResult, Score, Status, Trajectory
from tests.core.evaluations import evaluation_of, measured


def rules(policy: str = "strict", **knobs: object) -> EvaluationGroup:
    return EvaluationGroup.model_validate({"gate_policy": policy, "gate_metric": "soft", **knobs})


def outcomes(wins: int, losses: int, ties: int = 0) -> tuple[Evaluation, Evaluation]:
    candidate = [1] * wins + [0] * losses + [1] * ties
    return measured(*candidate), measured(*([0] * wins), *([1] * losses), *([1] * ties))


def judged(pair: tuple[Evaluation, Evaluation], gate: EvaluationGroup, groups: int = 0) -> Verdict:
    """The verdict on candidate and current skill; with `groups`, the items are dealt into that many groups."""
    of_items = {f"i{index}": f"g{index % groups}" for index in range(len(pair[0].scores))} if groups else {}
    return judge(Evidence(pair[0].model_copy(update={"groups": of_items}), pair[1], gate), gate)


def verdict(wins: int, losses: int, ties: int, gate: EvaluationGroup) -> Action:
    return judged(outcomes(wins, losses, ties), gate).action


@pytest.mark.parametrize("policy", GATE_POLICIES)
def test_no_policy_accepts_a_rounding_error(policy: str) -> None:
    # Ten wins by a hair: the signs would convince a sign test.
    candidate, current = measured(*[0.5 + SAME_MEAN / 2] * 10), measured(*[0.5] * 10)
    gate = rules(policy)
    assert judge(Evidence(candidate, current, gate), gate).action == Action.REJECT


@pytest.mark.parametrize("policy", ["strict", "exact_paired"])
class TestProtectedItems:
    def decided(self, pair: tuple[Evaluation, Evaluation], policy: str, *protected: str) -> GateDecision:
        gate = rules(policy, gate_protected_items=protected, min_coverage=0.5, gate_alpha=0.4)
        return decide(pair[0], pair[1], pair[1], gate)

    def test_none_may_lose(self, policy: str) -> None:
        # i9 is the loss.
        assert self.decided(outcomes(9, 1, 2), policy, "i0", "i10").action is Action.ACCEPT_NEW_BEST
        found = self.decided(outcomes(9, 1, 2), policy, "i0", "i9")
        assert found.action is Action.REJECT
        assert found.reason.endswith(": i9")

    def test_a_rounding_error_is_no_loss(self, policy: str) -> None:
        candidate, current = measured(1, 1, 0.5), measured(0, 0, 0.5 + SAME_MEAN / 2)
        assert self.decided((candidate, current), policy, "i2").action is Action.ACCEPT_NEW_BEST
        current = measured(0, 0, 0.5 + 2 * SAME_MEAN)
        assert self.decided((candidate, current), policy, "i2").action is Action.REJECT

    def test_one_without_a_score_under_the_candidate_decides_nothing(self, policy: str) -> None:
        found = self.decided((measured(1, 1, failed=1), measured(0, 0, 1)), policy, "i2")
        assert found.action is Action.INDECISIVE
        assert found.reason.endswith(": i2")


def test_misspelt_protected_items_are_named() -> None:
    gate = rules(gate_protected_items=["i1", "l2", "x"])
    assert unknown_protected_items(["i1", "i2"], gate) == ("l2", "x")
    assert unknown_protected_items(iter(["i1", "l2", "x"]), gate) == ()


class TestMissingScores:
    def decided(self, candidate: Evaluation, current: Evaluation, policy: str = "exact_paired") -> Action:
        return decide(candidate, current, current, rules(policy, min_coverage=0.5)).action

    def test_an_item_that_one_skill_lacks_counts_against_the_candidate(self) -> None:
        # Nine wins: p = 1/512. With four items of either side lost, p = 0.13.
        candidate, current = measured(*[1] * 13), measured(*[0] * 9, failed=4)
        assert self.decided(candidate, current) is Action.ACCEPT_NEW_BEST
        candidate, current = measured(*[1] * 9, *[0] * 4), measured(*[0] * 9, failed=4)
        assert self.decided(candidate, current) is Action.INDECISIVE
        candidate, current = measured(*[1] * 9, failed=4), measured(*[0] * 9, *[1] * 4)
        assert self.decided(candidate, current) is Action.INDECISIVE
        assert self.decided(candidate, current, "strict") is Action.ACCEPT_NEW_BEST

    def test_a_rival_whose_wins_time_out_gives_no_advantage(self) -> None:
        """Two skills that are equal, of which one lacks a score for half of the items that it alone would win."""
        random, accepted = Random(4), 0
        for _ in range(400):
            mine, theirs = ([random.random() < 0.5 for _ in range(60)] for _ in range(2))
            lost = {n for n in range(60) if theirs[n] and not mine[n] and random.random() < 0.5}
            current = measured(*map(int, theirs))
            kept = {item: score for item, score in current.scores.items() if int(item[1:]) not in lost}
            failed = current.model_copy(update={"scores": kept, "failures": {Status.TIMEOUT: len(lost)}})
            accepted += self.decided(measured(*map(int, mine)), failed).accepted
        assert accepted / 400 <= 0.05


class TestExactPaired:
    def test_alpha_is_enough(self) -> None:
        assert verdict(5, 0, 0, rules("exact_paired", gate_alpha=1 / 32)) == Action.ACCEPT
        assert verdict(9, 1, 0, rules("exact_paired", gate_alpha=11 / 1024)) == Action.ACCEPT
        assert verdict(9, 1, 0, rules("exact_paired", gate_alpha=0.0107)) == Action.REJECT

    @pytest.mark.parametrize(("alpha", "fewest"), [(0.1, 4), (0.05, 5), (0.01, 7)])
    def test_underpowered_is_what_no_outcome_could_have_passed(self, alpha: float, fewest: int) -> None:
        gate = rules("exact_paired", gate_alpha=alpha)
        assert verdict(fewest - 2, 1, 30, gate) == verdict(fewest - 1, 0, 30, gate) == Action.UNDERPOWERED
        assert verdict(fewest, 0, 30, gate) == Action.ACCEPT

    def test_graded_scores_count_by_their_size(self) -> None:
        gate = rules("exact_paired")
        candidate, current = measured(*[0.51] * 7, 0.21), measured(*[0.5] * 7, 0.2)
        found = judged((candidate, current), gate)
        assert (found.action, found.statistic) == (Action.ACCEPT, 1 / 256)
        # The patterns of signs with a loss of at most 5 steps: none lost, the 5, or up to five of the seven 1s.
        candidate, current = measured(*[0.51] * 7, 0.2), measured(*[0.5] * 7, 0.25)
        found = judged((candidate, current), gate)
        patterns = 1 + sum(comb(7, lost) for lost in range(1, 6))
        assert found.action is Action.REJECT
        assert found.statistic == pytest.approx((1 + patterns) / 256, abs=0.02)

    def test_many_small_wins_do_not_outweigh_few_large_losses(self) -> None:
        # Ten items gain a third, three lose all: the signs alone would say p = 0.046.
        candidate, current = measured(*[1 / 3] * 10, 0, 0, 0), measured(*[0] * 10, 1, 1, 1)
        found = judged((candidate, current), rules("exact_paired", gate_alpha=0.1))
        assert found.action == Action.REJECT
        assert found.statistic == pytest.approx(0.5, abs=0.1)

    def test_a_group_has_one_sign(self) -> None:
        found = judged(outcomes(8, 0, 8), rules("exact_paired"), groups=4)
        assert found.action == Action.UNDERPOWERED
        assert found.reason.startswith("4 wins and 0 losses of groups are fewer than the 5")
        assert verdict(8, 0, 8, rules("exact_paired")) == Action.ACCEPT


@pytest.mark.nightly
def test_a_failed_sample_of_some_items_does_not_raise_the_rate() -> None:
    random, trials, items = Random(7), 400, [f"i{index}" for index in range(100)]
    gate, accepted = rules("exact_paired", min_coverage=0), 0

    def row(item: str, *, failed: bool) -> RolloutResult:
        status, hit = (Status.TIMEOUT, 0) if failed else (Status.OK, int(random.random() < 0.8))
        score = None if failed else Score(hard=hit, soft=hit)
        return Rollout(trajectory=Trajectory(item_id=item, status=status), score=score).result

    for _ in range(trials):
        # Only the candidate's provider has a bad day: half of its items lack their second sample.
        second = [row(item, failed=index % 2 == 0) for index, item in enumerate(items)]
        candidate = evaluation_of(items, [*(row(item, failed=False) for item in items), *second], samples=2)
        current = evaluation_of(items, [row(item, failed=False) for item in items * 2], samples=2)
        accepted += judge(Evidence(candidate, current, gate), gate).action == Action.ACCEPT
    print("half of the candidate's items lack a sample:", accepted / trials)
    assert accepted / trials <= 0.05


DIFFERENCES = st.lists(st.sampled_from([-1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5, 0.75, 1.0]), min_size=1, max_size=10)


def by_enumeration(differences: list[float]) -> float:
    """The exact p-value, by all patterns of signs."""
    observed, sizes = sum(differences), [abs(difference) for difference in differences]
    patterns = list(product((1, -1), repeat=len(sizes)))
    as_large = sum(sum(map(math.prod, zip(signs, sizes, strict=True))) >= observed for signs in patterns)
    return as_large / len(patterns)


@given(DIFFERENCES)
def test_it_is_the_exact_test_but_for_the_randomness_of_the_patterns(differences: list[float]) -> None:
    # Four standard errors of a share among so many patterns.
    assert sign_flip_test(differences) == pytest.approx(by_enumeration(differences), abs=2 / math.sqrt(FLIPS))


@given(st.integers(0, 40), st.integers(0, 40), st.sampled_from([1.0, 1 / 3, 0.017]))
def test_equally_large_differences_are_a_sign_test(wins: int, losses: int, size: float) -> None:
    expected = sign_test(wins, wins + losses) if wins + losses else 1.0
    assert sign_flip_test([size] * wins + [0.0] * 3 + [-size] * losses) == expected


@given(st.integers(0, 60), st.integers(0, 60))
def test_the_sign_test_is_the_binomial_tail(wins: int, losses: int) -> None:
    n = wins + losses
    tail = float(Fraction(sum(math.comb(n, k) for k in range(wins, n + 1)), 2**n))
    assert sign_test(wins, n) == pytest.approx(tail, rel=1e-9)


def test_many_differences_are_no_matter() -> None:
    random = Random(8)
    differences = [random.uniform(-1, 1) for _ in range(5_000)]
    assert 0.001 < sign_flip_test(differences) < 0.999
    assert sign_flip_test([difference + 0.04 for difference in differences]) <= 0.001


@pytest.mark.parametrize(
    ("differences", "p"), [([], 1.0), ([0.0, 0.0], 1.0), ([0.4375, 2.2e-308, 2.2e-308], 0.5), ([-0.8125, 1e-12], 1.0)]
)
def test_no_size_is_too_small_or_too_large(differences: list[float], p: float) -> None:
    assert sign_flip_test(differences) == pytest.approx(p, abs=0.02)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30), st.randoms(use_true_random=False))
def test_the_order_does_not_count(differences: list[float], random: Random) -> None:
    other = [*differences]
    random.shuffle(other)
    assert sign_flip_test(other) == sign_flip_test(differences)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30))
def test_it_is_a_chance_and_never_zero(differences: list[float]) -> None:
    assert 0 < sign_flip_test(differences) <= 1
