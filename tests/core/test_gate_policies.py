import math
from math import comb
from random import Random

import pytest

from skillopt_airflow.core.betting import highest_capital
from skillopt_airflow.core.gate import decide, judge, to_confirm
from skillopt_airflow.core.gate_policies import POLICIES, policy_of
from skillopt_airflow.core.gate_policies.no_regression import unknown_protected_items
from skillopt_airflow.core.gate_policies.policy import Evidence, FreshDraws, Policy, evidence_of
from skillopt_airflow.core.item_scores import Evaluation, evaluation_of
from skillopt_airflow.core.paired import SAME_MEAN
from skillopt_airflow.core.training_groups import EvaluationGroup
from skillopt_airflow.core.types import Rollout, RolloutResult, Score, Status, Trajectory
from skillopt_airflow.core.verdict import Action, Verdict
from tests.core.evaluations import measured


def rules(policy: str = "paper", **knobs: object) -> EvaluationGroup:
    return EvaluationGroup.model_validate({"gate_policy": policy, "gate_metric": "soft", **knobs})


def outcomes(wins: int, losses: int, ties: int = 0) -> tuple[Evaluation, Evaluation]:
    candidate = [1] * wins + [0] * losses + [1] * ties
    return measured(*candidate), measured(*([0] * wins), *([1] * losses), *([1] * ties))


def judged(pair: tuple[Evaluation, Evaluation], gate: EvaluationGroup, groups: int = 0) -> Verdict:
    """The verdict on candidate and current skill; with `groups`, the items are dealt into that many groups."""
    of_items = {f"i{index}": f"g{index % groups}" for index in range(len(pair[0].scores))} if groups else {}
    return judge(evidence_of(pair[0].model_copy(update={"groups": of_items}), pair[1], gate), gate)


def verdict(wins: int, losses: int, ties: int, gate: EvaluationGroup) -> Action:
    return judged(outcomes(wins, losses, ties), gate).action


def test_a_policy_is_one_object_and_one_line_in_the_map(monkeypatch: pytest.MonkeyPatch) -> None:
    def unanimous(evidence: Evidence, rules: EvaluationGroup) -> Verdict:
        action = Action.REJECT if evidence.table.losses else Action.ACCEPT
        return Verdict(action=action, reason=f"{evidence.table.losses} losses")

    policy = Policy(judge=unanimous, fewest_items=lambda rules: 3, needs_fresh_draws=True)
    monkeypatch.setitem(POLICIES, "unanimous", policy)  # type: ignore[arg-type]
    chosen = rules().model_copy(update={"gate_policy": "unanimous"})
    accepted, rejected = outcomes(4, 0), outcomes(4, 1)
    assert decide(*accepted, accepted[1], chosen).action is Action.ACCEPT_NEW_BEST
    decision = decide(*rejected, rejected[1], chosen)
    assert (decision.action, decision.policy, decision.reason) == (Action.REJECT, "unanimous", "1 losses")
    assert to_confirm(*accepted, chosen) == ("i0", "i1", "i2", "i3")
    assert policy_of(chosen).fewest_items(chosen) == 3


@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_accepts_a_rounding_error(policy: str) -> None:
    # Ten wins by a hair: the signs would convince a sign test, and confirm has its fresh draws.
    candidate, current = measured(*[0.5 + SAME_MEAN / 2] * 10), measured(*[0.5] * 10)
    fresh = measured(*[1] * 10), measured(*[0] * 10)
    gate = rules(policy)
    assert judge(evidence_of(candidate, current, gate, fresh), gate).action == Action.REJECT


class TestNoRegression:
    def test_no_protected_item_may_lose(self) -> None:
        # i3 is the loss.
        assert verdict(3, 1, 2, rules("no_regression", gate_protected_items=["i0", "i4"])) == Action.ACCEPT
        found = judged(outcomes(3, 1, 2), rules("no_regression", gate_protected_items=["i0", "i3"]))
        assert (found.action, found.reason) == (Action.REJECT, "protected items lose: i3")

    def test_a_rounding_error_is_no_loss(self) -> None:
        gate = rules("no_regression", gate_protected_items=["i1"])
        candidate, current = measured(1, 0.5), measured(0, 0.5 + SAME_MEAN / 2)
        assert judged((candidate, current), gate).action == Action.ACCEPT
        current = measured(0, 0.5 + 2 * SAME_MEAN)
        assert judged((candidate, current), gate).action == Action.REJECT

    def test_what_only_the_candidate_misses_decides_nothing(self) -> None:
        gate = rules("no_regression", gate_protected_items=["i1"])
        found = judged((measured(1), measured(0, 1)), gate)
        assert found.action == Action.INDECISIVE
        assert found.reason.endswith(": i1")
        assert judged((measured(1, 1), measured(0)), gate).action == Action.ACCEPT

    def test_misspelt_items_are_named(self) -> None:
        gate = rules("no_regression", gate_protected_items=["i1", "l2", "x"])
        assert unknown_protected_items(["i1", "i2"], gate) == ("l2", "x")
        assert unknown_protected_items(iter(["i1", "l2", "x"]), gate) == ()


class TestPairedSe:
    def test_the_gain_must_exceed_the_error(self) -> None:
        # Differences 1 and 0: mean 0.5, standard error 0.5.
        assert verdict(1, 0, 1, rules("paired_se", gate_se_factor=1.0)) == Action.REJECT
        assert verdict(1, 0, 1, rules("paired_se", gate_se_factor=0.999)) == Action.ACCEPT
        # One item has no standard error.
        assert verdict(1, 0, 0, rules("paired_se")) == Action.UNDERPOWERED
        # The statistic is t.
        found = judged(outcomes(4, 1, 5), rules("paired_se"))
        assert found.statistic == pytest.approx(0.3 / (0.674949 / 10**0.5), abs=1e-5)
        assert found.action == Action.REJECT
        assert found.reason.startswith("the gain 0.3000 does not exceed 2 standard errors")

    def test_few_groups_take_more_standard_errors(self) -> None:
        found = judged(outcomes(6, 1, 1), rules("paired_se"), groups=4)
        # Group sums 2, 2, 0, 1 about 1.25; the t of 3 degrees that is as rare as 2 normal errors is 3.307.
        error = math.sqrt((2 * 0.75**2 + 1.25**2 + 0.25**2) * 4 / 3) / 8
        assert found.statistic == pytest.approx(0.625 / error)
        assert found.reason.startswith("the gain 0.6250 does not exceed 3.31 standard errors over 4 groups")

    @pytest.mark.parametrize(
        ("groups", "action"), [(2, Action.UNDERPOWERED), (5, Action.UNDERPOWERED), (6, Action.ACCEPT)]
    )
    def test_few_groups_that_gain_alike_may_do_so_by_chance(self, groups: int, action: Action) -> None:
        """Of candidates that change nothing, groups that flip as a whole all gain in one case of 2 ** groups."""
        assert judged(outcomes(3 * groups, 0, 0), rules("paired_se"), groups).action == action


class TestMcNemar:
    def test_alpha_is_enough(self) -> None:
        assert verdict(5, 0, 0, rules("mcnemar", gate_alpha=1 / 32)) == Action.ACCEPT
        assert verdict(9, 1, 0, rules("mcnemar", gate_alpha=11 / 1024)) == Action.ACCEPT
        assert verdict(9, 1, 0, rules("mcnemar", gate_alpha=0.0107)) == Action.REJECT

    @pytest.mark.parametrize(("alpha", "fewest"), [(0.1, 4), (0.05, 5), (0.01, 7)])
    def test_underpowered_is_what_no_outcome_could_have_passed(self, alpha: float, fewest: int) -> None:
        gate = rules("mcnemar", gate_alpha=alpha)
        assert verdict(fewest - 2, 1, 30, gate) == verdict(fewest - 1, 0, 30, gate) == Action.UNDERPOWERED
        assert verdict(fewest, 0, 30, gate) == Action.ACCEPT

    def test_graded_scores_count_by_their_size(self) -> None:
        gate = rules("mcnemar")
        candidate, current = measured(*[0.51] * 7, 0.21), measured(*[0.5] * 7, 0.2)
        found = judged((candidate, current), gate)
        assert (found.action, found.statistic) == (Action.ACCEPT, 1 / 256)
        # The patterns of signs with a loss of at most 5 steps: none lost, the 5, or up to five of the seven 1s.
        candidate, current = measured(*[0.51] * 7, 0.2), measured(*[0.5] * 7, 0.25)
        found = judged((candidate, current), gate)
        patterns = 1 + sum(comb(7, lost) for lost in range(1, 6))
        assert (found.action, found.statistic) == (Action.REJECT, (1 + patterns) / 256)

    def test_many_small_wins_do_not_outweigh_few_large_losses(self) -> None:
        # Ten items gain a third, three lose all: the signs alone would say p = 0.046.
        candidate, current = measured(*[1 / 3] * 10, 0, 0, 0), measured(*[0] * 10, 1, 1, 1)
        found = judged((candidate, current), rules("mcnemar", gate_alpha=0.1))
        assert found.action == Action.REJECT
        assert found.statistic == pytest.approx(0.5)

    def test_a_group_has_one_sign(self) -> None:
        found = judged(outcomes(8, 0, 8), rules("mcnemar"), groups=4)
        assert found.action == Action.UNDERPOWERED
        assert found.reason.startswith("4 wins and 0 losses of groups are fewer than the 5")
        assert verdict(8, 0, 8, rules("mcnemar")) == Action.ACCEPT


class TestEProcess:
    def test_one_over_alpha_is_enough(self) -> None:
        evidence = highest_capital([1.0] * 5, math.inf)
        assert evidence == pytest.approx(15.29, abs=0.01)
        assert verdict(5, 0, 3, rules("e_process", gate_alpha=1.0001 / evidence)) == Action.ACCEPT
        assert verdict(5, 0, 3, rules("e_process", gate_alpha=0.9999 / evidence)) == Action.REJECT

    def test_the_statistic_is_e(self) -> None:
        gate = rules("e_process")
        # It has seen enough before it has seen all of the 3,000.
        assert judged(outcomes(3000, 0), gate).statistic == pytest.approx(27.46, abs=0.01)
        found = judged(outcomes(6, 0), gate)
        assert (found.action, found.statistic) == (Action.ACCEPT, pytest.approx(27.46, abs=0.01))
        assert "6 wins and 0 losses brought E to 27.46" in found.reason

    def test_a_group_is_one_difference(self) -> None:
        found = judged(outcomes(12, 0), rules("e_process"), groups=6)
        assert "6 wins and 0 losses of groups brought E to 27.46" in found.reason

    def test_the_order_of_the_data_tells_it_nothing(self) -> None:
        # Records may be sorted by what a candidate gains on them.
        assert highest_capital([1.0] * 202 + [-1.0] * 198, math.inf) > 1e9
        found = judged(outcomes(202, 198), rules("e_process"))
        assert found.action == Action.REJECT
        assert found.reason.endswith(", below 20")


class TestConfirm:
    GATE = rules("confirm")

    def test_the_items_that_differ_are_drawn_again(self) -> None:
        candidate, current = measured(1, 0, 1, 0.5), measured(0, 0.5, 1, 0.5)
        assert to_confirm(candidate, current, self.GATE) == ("i0", "i1")

    @pytest.mark.parametrize(
        "knobs", [{"gate_policy": "paper"}, {"use_gate": False}, {"gate_metric": "hard", "gate_policy": "mcnemar"}]
    )
    def test_only_where_the_policy_asks(self, knobs: dict[str, object]) -> None:
        assert to_confirm(*outcomes(3, 1), rules(**({"policy": "confirm"} | knobs))) == ()  # type: ignore[arg-type]

    def test_nothing_is_drawn_for_a_candidate_that_lost_or_is_not_covered(self) -> None:
        candidate, current = outcomes(3, 3, 2)
        assert to_confirm(candidate, current, self.GATE) == ()
        candidate, current = outcomes(3, 1, 2)
        failed = candidate.model_copy(update={"failures": {Status.TIMEOUT: 1}})
        assert to_confirm(candidate, current, self.GATE) == ("i0", "i1", "i2", "i3")
        assert to_confirm(failed, current, self.GATE) == ()

    def judge(self, fresh: tuple[Evaluation, Evaluation] | None) -> tuple[Action, float | None]:
        found = judge(evidence_of(*outcomes(6, 1, 9), self.GATE, fresh), self.GATE)
        return found.action, found.statistic

    def test_fresh_draws_decide(self) -> None:
        assert self.judge(None) == (Action.INDECISIVE, None)
        assert self.judge(outcomes(5, 0, 2)) == (Action.ACCEPT, 1 / 32)
        assert self.judge(outcomes(4, 1, 2)) == (Action.REJECT, 6 / 32)
        assert self.judge(outcomes(0, 7)) == (Action.REJECT, 1.0)
        assert self.judge(outcomes(4, 0, 3)) == (Action.UNDERPOWERED, None)
        # Wins on other items don't count.
        other = measured(*[1] * 4, 0, 0, 0, *[1] * 9), measured(*[0] * 16)
        assert self.judge(other) == (Action.UNDERPOWERED, None)

    @pytest.mark.parametrize("side", [0, 1])
    def test_missing_fresh_draws_decide_nothing(self, side: int) -> None:
        fresh = list(outcomes(7, 0))
        fresh[side] = Evaluation(scores={item: score for item, score in fresh[side].scores.items() if item != "i6"})
        assert self.judge((fresh[0], fresh[1])) == (Action.INDECISIVE, None)

    def test_min_coverage_is_enough(self) -> None:
        gate = self.GATE.model_copy(update={"min_coverage": 0.75})
        table = evidence_of(*outcomes(6, 1), gate).table
        differences = {f"i{index}": 1.0 for index in range(6)}
        for coverage, action in ((0.75, Action.ACCEPT), (0.749, Action.INDECISIVE)):
            evidence = Evidence(table, differences, fresh=FreshDraws(differences, coverage))
            assert judge(evidence, gate).action == action


@pytest.mark.parametrize(("items", "worst"), [(9, 0.0307), (17, 0.0368), (24, 0.0368), (40, 0.0278)])
def test_the_worst_rate_of_paired_se(items: int, worst: float) -> None:
    # The rate is linear in each item's chance to differ, which is at most 1/2 (a coin under both skills): so it is
    # highest where every item is a coin or certain, and the number of coins is all there is to try.
    gate = rules("paired_se")
    accepting = [
        (wins, losses)
        for wins in range(items + 1)
        for losses in range(items + 1 - wins)
        if verdict(wins, losses, items - wins - losses, gate) == Action.ACCEPT
    ]

    def rate(coins: int) -> float:
        # Each coin wins and loses with chance 1/4.
        ways = (
            comb(coins, wins) * comb(coins - wins, losses) * 2 ** (coins - wins - losses)
            for wins, losses in accepting
            if wins + losses <= coins
        )
        return sum(ways) / 4**coins

    assert max(rate(coins) for coins in range(1, items + 1)) == pytest.approx(worst, abs=5e-5)


def test_paired_se_has_no_statistic_where_all_differences_are_equal_but_for_rounding() -> None:
    found = judged((measured(1, 2 / 3, 1 / 3), measured(2 / 3, 1 / 3, 0)), rules("paired_se"))
    assert (found.action, found.statistic) == (Action.ACCEPT, None)


@pytest.mark.nightly
def test_draws_and_partial_credit_do_not_raise_the_rate() -> None:
    random = Random(11)
    gates = [rules(policy) for policy in ("paired_se", "mcnemar", "e_process")]
    accepted = [0, 0, 0]
    for _ in range(1500):
        means = [random.random() for _ in range(17)]

        def draw(chance: float) -> float:
            return sum(random.random() ** 0.5 * (random.random() < chance) for _ in range(3)) / 3

        candidate, current = (measured(*map(draw, means)) for _ in range(2))
        evidence = evidence_of(candidate, current, gates[0])
        for index, gate in enumerate(gates):
            accepted[index] += judge(evidence, gate).action == Action.ACCEPT
    print("graded scores of 3 draws, 17 items:", [count / 1500 for count in accepted])
    # Four standard errors of 1,500 trials at 5 %.
    assert max(accepted) / 1500 <= 0.0725


@pytest.mark.nightly
def test_a_failed_draw_of_some_items_does_not_raise_the_rate() -> None:
    random, trials, items = Random(7), 400, [f"i{index}" for index in range(100)]
    gates = [rules(policy, min_coverage=0) for policy in ("mcnemar", "e_process")]

    def row(item: str, *, failed: bool) -> RolloutResult:
        status, hit = (Status.TIMEOUT, 0) if failed else (Status.OK, int(random.random() < 0.8))
        score = None if failed else Score(hard=hit, soft=hit)
        return Rollout(trajectory=Trajectory(item_id=item, status=status), score=score).result

    accepted = [0, 0]
    for _ in range(trials):
        # Only the candidate's provider has a bad day: half of its items lack their second draw.
        second = [row(item, failed=index % 2 == 0) for index, item in enumerate(items)]
        candidate = evaluation_of(items, [*(row(item, failed=False) for item in items), *second], draws=2)
        current = evaluation_of(items, [row(item, failed=False) for item in items * 2], draws=2)
        evidence = evidence_of(candidate, current, gates[0])
        for index, gate in enumerate(gates):
            accepted[index] += judge(evidence, gate).action == Action.ACCEPT
    print("half of the candidate's items lack a draw:", [count / trials for count in accepted])
    assert max(accepted) / trials <= 0.05
