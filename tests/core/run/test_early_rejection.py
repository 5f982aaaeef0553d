import itertools
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.config.training_groups import GATE_POLICIES, EvaluationGroup
from skillopt_airflow.core.gate.decision import Action, GateDecision, decide
from skillopt_airflow.core.gate.item_scores import Evaluation, ItemScore, covers
from skillopt_airflow.core.gate.paired import SAME_MEAN, paired
from skillopt_airflow.core.run.early_rejection import RunningEvaluation, evaluation_order
from skillopt_airflow.core.run.state import TrackRecord
from skillopt_airflow.core.values.types import Status

pytestmark = pytest.mark.slow

NONE = TrackRecord()
RULES = EvaluationGroup(early_reject=True)
SOFT = EvaluationGroup(early_reject=True, gate_metric="soft")


def score(value: float) -> ItemScore:
    return ItemScore(hard=float(value >= 1), soft=value)


def scored(**values: float) -> dict[str, ItemScore]:
    return {item: score(value) for item, value in values.items()}


def loss(
    candidate: Mapping[str, ItemScore],
    current: Mapping[str, ItemScore],
    order: str,
    failed: Collection[str] = (),
    rules: EvaluationGroup = SOFT,
) -> int | None:
    ended = dict.fromkeys(failed, Status.TIMEOUT)
    return certain_loss(RunningEvaluation(candidate, ended, tuple(order), Evaluation(scores=dict(current)), rules))


def certain_loss(running: RunningEvaluation) -> int | None:
    """The number of items that show the loss."""
    lost = running.lost()
    return None if lost is None else lost[0].size - lost[0].cancelled


def test_most_to_win_first_and_unknown_last() -> None:
    current = Evaluation(scores=scored(a=1, b=0.5, c=0, d=1, f=0))
    assert evaluation_order("abcdef", current, SOFT, NONE) == ("c", "f", "b", "a", "d", "e")
    assert evaluation_order("abcdef", current, RULES, NONE) == ("b", "c", "f", "a", "d", "e")
    assert evaluation_order("fedcba", current, RULES, NONE) == ("f", "c", "b", "d", "a", "e")


def test_where_earlier_candidates_failed_comes_before_where_they_did_not() -> None:
    current = Evaluation(scores=scored(a=0, b=0, c=1, d=1))
    record = NONE
    for _ in range(3):
        record = record.with_scores(Evaluation(scores=scored(a=1, b=0, c=1, d=0)), RULES)
    assert evaluation_order("abcd", current, RULES, record) == ("b", "d", "a", "c")


VALUES = st.sampled_from([0.0, 0.3, 1.0])
ITEMS = st.lists(st.tuples(VALUES, VALUES, VALUES), min_size=1, max_size=25)
"""What candidate, current skill and an earlier candidate score on an item."""


def named(values: Sequence[float]) -> dict[str, ItemScore]:
    return {f"i{index:02d}": score(value) for index, value in enumerate(values)}


def evaluated(items: Sequence[tuple[float, float, float]]) -> tuple[dict[str, ItemScore], RunningEvaluation]:
    """What the candidate scores, and its evaluation before anything has run."""
    candidate, mine, earlier = (named(values) for values in zip(*items, strict=True))
    current = Evaluation(scores=mine)
    record = NONE.with_scores(Evaluation(scores=earlier), SOFT)
    order = evaluation_order(sorted(mine), current, SOFT, record)
    return candidate, RunningEvaluation({}, {}, order, current, SOFT, record)


@given(ITEMS, st.integers(1, 5), st.randoms(use_true_random=False))
def test_an_evaluation_that_holds_items_back_ends_like_one_that_does_not(
    items: list[tuple[float, float, float]], at_once: int, random: Random
) -> None:
    whole, running = evaluated(items)
    begun: list[str] = []
    while certain_loss(running) is None and len(running.scores) < len(items):
        free = at_once - (len(begun) - len(running.scores))
        begun += list(running.worthwhile()[len(begun) :][:free])
        ended = random.choice([item for item in begun if item not in running.scores])
        running = replace(running, scores={**running.scores, ended: whole[ended]})
    lost = certain_loss(replace(running, scores=whole))
    assert certain_loss(running) == lost
    assert lost is None or len(begun) >= lost


@given(ITEMS)
def test_no_item_of_a_candidate_that_does_as_well_as_expected_and_better_once_waits(
    items: list[tuple[float, float, float]],
) -> None:
    whole, start = evaluated([(mine, mine, mine) for _, mine, _ in items])
    for known in range(len(items)):
        running = replace(start, scores={item: whole[item] for item in start.order[:known]})
        assert running.worthwhile() == start.order
        if known and whole[start.order[0]].soft < 1:
            better = {**running.scores, start.order[0]: score(1)}
            assert replace(running, scores=better).worthwhile() == start.order


def test_a_candidate_that_does_badly_begins_what_will_probably_show_it() -> None:
    current = Evaluation(scores=named([0, 0, 1, 1, 1, 1, 1, 1]))
    lost = Evaluation(scores=named([0] * 8))
    record = NONE.with_scores(lost, SOFT).with_scores(lost, SOFT)
    order = evaluation_order(sorted(current.scores), current, SOFT, record)
    running = RunningEvaluation({}, {}, order, current, SOFT, record)
    # On the last six a half is expected of it: two of them take away 1, with a standard deviation of 0.71.
    assert running.worthwhile() == order[:4]
    # With a win it takes five of them: 1.5 below a tie, with a standard deviation of 1.12.
    assert replace(running, scores=named([1, 0])).worthwhile() == order[:7]
    assert replace(running, scores=named([1, 1])).worthwhile() == order


def test_where_a_loss_is_certain_but_too_few_items_have_a_score_all_of_them_run() -> None:
    current = Evaluation(scores=named([0, 0, 1, 1, 1, 1]))
    order = evaluation_order(sorted(current.scores), current, SOFT, NONE)
    failed = dict.fromkeys(order[:1], Status.TIMEOUT)
    scores = {order[1]: score(0), order[2]: score(0)}
    running = RunningEvaluation(scores, failed, order, current, relaxed(SOFT, 0.95))
    assert certain_loss(running) is None
    assert running.worthwhile() == order


class TestCertainLoss:
    CURRENT = scored(a=0, b=0, c=1, d=1)

    def test_too_many_failures_leave_the_verdict_to_the_full_evaluation(self) -> None:
        found = scored(b=0, c=0, d=0)
        assert loss(found, self.CURRENT, "abcd", failed="a", rules=relaxed(SOFT, 0.75)) == 3
        assert loss(found, self.CURRENT, "abcd", failed="a", rules=relaxed(SOFT, 0.76)) is None

    def test_a_rounding_error_is_no_hope(self) -> None:
        # 10/11 + 6/13 + 1/5 + 3/5 + 8/11 = 2/5 + 8/11 + 2/5 + 6/13 + 10/11, and floats disagree.
        candidate = dict(zip("abcde", map(score, [10 / 11, 6 / 13, 1 / 5, 3 / 5, 8 / 11]), strict=True))
        current = dict(zip("abcde", map(score, [2 / 5, 8 / 11, 2 / 5, 6 / 13, 10 / 11]), strict=True))
        last = scored(f=1)
        assert loss(candidate, current | last, "abcdef") == 5
        assert loss(current, candidate | last, "abcdef") == 5
        assert loss(candidate | scored(a=10 / 11 + 6 * SAME_MEAN), current | last, "abcdef") is None


def relaxed(rules: EvaluationGroup, min_coverage: float) -> EvaluationGroup:
    return rules.model_copy(update={"min_coverage": min_coverage})


STEPS = st.sampled_from([0.0, 0.25, 1.0])
TABLES = st.lists(st.tuples(STEPS | st.none(), STEPS | st.none()), min_size=1, max_size=5)


@given(TABLES, st.integers(0, 5))
def test_it_is_a_loss_exactly_if_no_completion_wins(table: list[tuple[float | None, float | None]], known: int) -> None:
    order = [f"i{index}" for index in range(len(table))]
    current = Evaluation(
        scores={i: score(theirs) for i, (_, theirs) in zip(order, table, strict=True) if theirs is not None}
    )
    ran = {i: score(mine) for i, (mine, _) in zip(order[:known], table, strict=False) if mine is not None}
    failed = {item: Status.TIMEOUT for item in order[:known] if item not in ran}

    def winnable(prefix: int) -> bool:
        before = {item: found for item, found in ran.items() if item in order[:prefix]}
        rest = [item for item in order if item not in before]
        completions = itertools.product([None, 0.0, 1.0], repeat=len(rest))
        ends = ({i: score(end) for i, end in zip(rest, one, strict=True) if end is not None} for one in completions)
        return any(paired(Evaluation(scores=before | end), current, SOFT).better for end in ends)

    expected = next((prefix for prefix in range(min(known, len(order)) + 1) if not winnable(prefix)), None)
    rules = relaxed(SOFT, 0)
    early = current.scores and expected != len(order)
    assert certain_loss(RunningEvaluation(ran, failed, order, current, rules)) == (expected if early else None)


def arrive(
    table: Mapping[str, ItemScore | Status],
    order: Sequence[str],
    current: Evaluation,
    rules: EvaluationGroup,
    random: Random,
) -> tuple[dict[str, ItemScore], dict[str, Status]]:
    """Results come in from several containers, each working through its slice; stops at a certain loss."""
    containers = random.randint(1, 4)
    queues = [list(order[index::containers]) for index in range(containers)]
    if random.random() < 0.5:
        random.shuffle(queues[0])
    scores: dict[str, ItemScore] = {}
    failed: dict[str, Status] = {}
    while any(queues):
        queue = random.choice([queue for queue in queues if queue])
        for item in [queue.pop(0) for _ in range(min(len(queue), random.randint(1, 8)))]:
            found = table[item]
            if isinstance(found, Status):
                failed[item] = found
            else:
                scores[item] = found
        if RunningEvaluation(scores, failed, order, current, rules).lost() is not None:
            break
    return scores, failed


def random_table(random: Random) -> tuple[dict[str, ItemScore | Status], Evaluation, EvaluationGroup]:
    """A candidate's full outcome, the current evaluation, and rules."""
    ids = [f"i{index}" for index in range(random.randint(1, 60))]
    graded, failing = random.random() < 0.5, random.choice([0.0, 0.0, 0.0, 0.05])
    ability, other = random.random(), random.random()

    def draw(chance: float) -> ItemScore:
        hard = float(random.random() < chance)
        return ItemScore(hard=hard, soft=max(hard, random.randint(0, 12) / 13) if graded else hard)

    outcome: dict[str, ItemScore | Status] = {
        item: Status.TIMEOUT if random.random() < failing else draw(ability) for item in ids
    }
    current = Evaluation(scores={item: draw(other) for item in ids if random.random() >= failing})
    rules = EvaluationGroup.model_validate(
        {
            "early_reject": True,
            "gate_policy": random.choice(sorted(GATE_POLICIES)),
            "gate_metric": random.choice(["hard", "soft", "mixed"]),
            "gate_mixed_weight": random.choice([0.5, 0.3]),
            "gate_protected_items": ids[:2],
        }
    )
    return outcome, current, rules


def full(outcome: Mapping[str, ItemScore | Status]) -> Evaluation:
    failures = Counter(found for found in outcome.values() if isinstance(found, Status))
    scores = {item: found for item, found in outcome.items() if isinstance(found, ItemScore)}
    return Evaluation(scores=scores, failures=dict(failures))


def check(
    outcome: Mapping[str, ItemScore | Status], current: Evaluation, rules: EvaluationGroup, random: Random
) -> int:
    """Early rejection against the full evaluation, twice in other orders of arrival; the rollouts that it saved."""
    evaluation = full(outcome)
    decision = decide(evaluation, current, current, rules)
    order = evaluation_order(list(outcome), current, rules, NONE)
    records: list[tuple[Evaluation, GateDecision] | None] = []
    for _ in range(2):
        scores, failed = arrive(outcome, order, current, rules, random)
        lost = RunningEvaluation(scores, failed, order, current, rules).lost()
        if lost is None:
            assert (scores, failed) == (evaluation.scores, {i: s for i, s in outcome.items() if isinstance(s, Status)})
            records.append(None)
            continue
        short, bound = lost
        early = decide(short, current, current, rules, certain="lost")
        records.append((short, early))
        assert early.action == Action.REJECT
        assert short.size == evaluation.size
        assert short.cancelled > 0
        assert not decision.action.accepted
        assert not decision.against_current.better
        assert bound <= sum_of_current(current, order, rules) + SAME_MEAN
        if decision.against_current.pairs:
            assert decision.against_current.score <= bound + SAME_MEAN
    assert records[0] == records[1]
    if records[0] is not None and covers(evaluation, rules):
        assert decision.action == Action.REJECT
    return records[0][0].cancelled if records[0] else 0


def sum_of_current(current: Evaluation, order: Sequence[str], rules: EvaluationGroup) -> float:
    return Evaluation(scores={item: current.scores[item] for item in order if item in current.scores}).mean(
        rules.gate_metric, rules.gate_mixed_weight
    )


@pytest.mark.nightly
def test_the_same_decision_as_the_full_evaluation_in_any_order_of_arrival() -> None:
    random = Random(5)
    saved = items = 0
    for _ in range(4_000):
        outcome, current, rules = random_table(random)
        saved += check(outcome, current, rules, random)
        items += len(outcome)
    print(f"{saved} of {items} rollouts cancelled")
    assert saved > items / 10


def test_the_record_of_an_early_reject() -> None:
    current = Evaluation(scores=scored(a=0, b=0, c=0, d=1, e=1, f=1))
    order = evaluation_order("fedcba", current, RULES, NONE)
    assert order == ("c", "b", "a", "f", "e", "d")
    rules = relaxed(RULES, 0.8)
    scores, failed = scored(c=0, b=1, f=0, e=0, d=1), {"a": Status.TIMEOUT}
    running = RunningEvaluation(scores, failed, order, current, rules)
    assert certain_loss(running) == 5
    lost = running.lost()
    assert lost is not None
    short, bound = lost
    assert short == Evaluation(scores=scored(c=0, b=1, f=0, e=0), failures={Status.TIMEOUT: 1}, cancelled=1)
    # b won; a and d may have.
    assert bound == 0.5
    decision = decide(short, current, current, rules, certain="lost")
    assert (decision.action, decision.reason, decision.policy) == (Action.REJECT, "lost", "strict")
    assert (decision.against_current.wins, decision.against_current.losses, decision.against_best.ties) == (1, 2, 1)
    assert decision.coverage == pytest.approx(4 / 6)


def test_the_bound_is_over_the_items_that_the_gate_compares() -> None:
    current = Evaluation(scores=scored(a=0.5, b=0.5))
    lost = RunningEvaluation(scored(x=1, a=0, b=1), {}, ("x", "a", "b"), current, SOFT).lost()
    assert lost is not None
    assert (lost[1], lost[0].cancelled) == (0.5, 1)
