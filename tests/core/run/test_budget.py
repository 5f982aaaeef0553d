import random
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.config.resource_groups import BudgetGroup
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.run.budget import (
    MEASURING_ROLES,
    ModelPrice,
    Prices,
    RemainingLimits,
    Role,
    Spending,
    by_stage,
    missing_price,
    remaining_limits,
    stop_reason,
    task_limits,
    total_spending,
)
from skillopt_airflow.core.values.types import ModelCall

CHEAP = ModelPrice(input=0.5, output=2.0, source="budget.prices")
DEAR = ModelPrice(input=10.0, output=30.0, source="budget.prices")
PRICES: Prices = {"target": CHEAP, "optimizer": DEAR}

COUNTS = st.integers(0, 10_000)
CALLS = st.lists(
    st.builds(
        ModelCall,
        role=st.sampled_from(["target", "optimizer"]),
        stage=st.sampled_from(["rollout", "evaluate", "reflect"]),
        model=st.just("m"),
        http_status=st.just(200),
        attempts=st.integers(1, 3),
        prompt_tokens=COUNTS,
        completion_tokens=COUNTS,
        started=st.integers(0, 100).map(float),
        seconds=st.integers(0, 9).map(float),
        batch=st.booleans(),
    ),
    max_size=12,
)
STEPS = st.builds(Spending, calls=COUNTS, tokens=COUNTS, usd=st.integers(0, 100).map(float))


def call(role: Role, stage: str, prompt: int, completion: int, started: float = 0.0, attempts: int = 1) -> ModelCall:
    tokens = {"prompt_tokens": prompt, "completion_tokens": completion, "started": started, "seconds": 1.5}
    fields = {"role": role, "stage": stage, "model": "m", "http_status": 200, "attempts": attempts}
    return ModelCall.model_validate(fields | tokens)


def test_each_role_has_its_own_price() -> None:
    calls = [call("target", "rollout", 1_000_000, 500_000), call("optimizer", "reflect", 100_000, 10_000)]
    assert total_spending(calls, PRICES) == Spending(calls=2, tokens=1_610_000, usd=0.5 + 1.0 + 1.0 + 0.3)
    # A batched call costs half.
    usual = call("target", "evaluate", 1_000_000, 500_000)
    assert total_spending([usual, usual.model_copy(update={"batch": True})], PRICES).usd == 1.5 + 0.75


@pytest.mark.parametrize("prices", [{"target": CHEAP, "optimizer": None}, {"target": CHEAP}])
def test_a_price_that_nobody_knows_is_not_free(prices: Prices) -> None:
    calls = [call("target", "rollout", 1_000_000, 0), call("optimizer", "reflect", 10, 1)]
    assert total_spending(calls, prices).usd is None
    assert total_spending(calls[:1], prices).usd == 0.5
    assert [cost.usd for cost in by_stage(calls, prices)] == [None, 0.5]


def test_stages_come_in_the_order_in_which_they_began() -> None:
    calls = [
        call("optimizer", "reflect", 1, 1, started=20.0, attempts=4),
        call("target", "rollout", 1, 1, started=10.0),
        call("target", "evaluate", 1, 1, started=30.0),
        call("target", "rollout", 1, 1, started=40.0),
    ]
    costs = by_stage(calls, PRICES)
    assert [cost.attempts for cost in costs] == [2, 4, 1]
    assert [(cost.stage, cost.role, cost.calls, cost.seconds) for cost in costs] == [
        ("rollout", "target", 2, 3.0),
        ("reflect", "optimizer", 1, 1.5),
        ("evaluate", "target", 1, 1.5),
    ]


@given(CALLS, st.randoms(use_true_random=False))
def test_the_order_of_the_calls_makes_no_difference(calls: list[ModelCall], order: random.Random) -> None:
    shuffled = list(calls)
    order.shuffle(shuffled)
    assert total_spending(shuffled, PRICES) == total_spending(calls, PRICES)


@given(CALLS, CALLS)
def test_spending_adds_up(first: list[ModelCall], second: list[ModelCall]) -> None:
    one, other, both = (total_spending(calls, PRICES) for calls in (first, second, first + second))
    assert both.calls == one.calls + other.calls
    assert both.tokens == one.tokens + other.tokens
    assert one.usd is not None
    assert other.usd is not None
    assert both.usd == pytest.approx(one.usd + other.usd)
    assert one.plus(other) == both.model_copy(update={"usd": one.usd + other.usd})
    assert one.plus(Spending(usd=None)) == one.model_copy(update={"usd": None})


@pytest.mark.parametrize(
    ("budget", "why"),
    [
        ({}, ""),
        ({"max_calls": 1_550, "max_tokens": 21_000, "max_usd": 2.5}, ""),
        ({"max_calls": 1_500}, "budget.max_calls = 1,500: 1,430"),
        ({"max_tokens": 20_500}, "budget.max_tokens = 20,500: 20,000"),
        ({"max_usd": 2.25}, "budget.max_usd = 2.25: 2.0000"),
    ],
)
def test_the_run_stops_before_the_step_that_would_pass_a_limit(budget: dict[str, float], why: str) -> None:
    total = Spending(calls=1_430, tokens=20_000, usd=2.0)
    # The next one may take as much of each as any of them did.
    steps = [Spending(calls=120, tokens=5, usd=0.1), Spending(calls=3, tokens=1_000, usd=0.5)]
    found = stop_reason(total, steps, BudgetGroup.model_validate(budget))
    assert found.startswith(why)
    assert bool(found) == bool(why)


def test_a_limit_that_is_used_up_or_cannot_be_counted_stops_the_run_although_no_step_is_known() -> None:
    assert stop_reason(Spending(calls=500), [], BudgetGroup(max_calls=500))
    assert not stop_reason(Spending(calls=499), [], BudgetGroup(max_calls=500))
    assert "budget.prices" in stop_reason(Spending(usd=None), [], BudgetGroup(max_usd=5))
    assert "budget.prices" in stop_reason(Spending(), [Spending(usd=1), Spending(usd=None)], BudgetGroup(max_usd=5))
    assert not stop_reason(Spending(usd=None), [Spending(usd=None)], BudgetGroup(max_calls=5))


@given(st.lists(STEPS, max_size=8), st.integers(1, 40_000))
def test_steps_like_those_before_never_pass_the_limit(steps: list[Spending], limit: int) -> None:
    budget, done = BudgetGroup(max_calls=limit), steps[:1]
    for step in steps[1:]:
        total = Spending(calls=sum(each.calls for each in done))
        if stop_reason(total, done, budget) or step.calls > max(one.calls for one in done):
            break
        done.append(step)
        assert sum(each.calls for each in done) <= limit


def configured(judge: str | None = None, **budget: float) -> TrainConfig:
    models = {"target": "openai-chat:stand-in", "optimizer": "openai:gpt-5", "judge": judge}
    return TrainConfig.from_layers({"model": models, "budget": budget})


def test_a_limit_in_dollars_needs_the_price_of_every_model_that_is_asked() -> None:
    text = missing_price({"target": None, "optimizer": DEAR}, configured(max_usd=5))
    assert text.startswith("budget.max_usd = 5: ")
    assert '{"openai-chat:stand-in": {"input": 1.25, "output": 10}}' in text
    assert "openai-chat:stand-in and the optimizer openai:gpt-5" in missing_price({}, configured(max_usd=5))
    assert missing_price(PRICES, configured(max_usd=5)) == ""
    assert missing_price({}, configured(max_tokens=5)) == ""
    judged = configured("openai-chat:judge", max_usd=5)
    assert "the judge openai-chat:judge" in missing_price(PRICES, judged)
    assert missing_price({**PRICES, "judge": CHEAP}, judged) == ""
    assert missing_price({"target": CHEAP, "judge": CHEAP}, judged, MEASURING_ROLES) == ""
    assert missing_price({"target": CHEAP}, configured(max_usd=5), MEASURING_ROLES) == ""
    assert "the judge openai-chat:judge" in missing_price({"target": CHEAP}, judged, MEASURING_ROLES)


@given(
    st.integers(1, 500),
    st.integers(0, 600),
    st.integers(1, 5),
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 300)), max_size=12),
)
def test_the_tasks_of_a_stage_never_spend_more_than_was_left_before_it(
    limit: int, others: int, tasks: int, attempts: list[tuple[int, int]]
) -> None:
    budget, done = BudgetGroup(max_calls=limit, max_tokens=limit, max_usd=limit), [0] * tasks

    def amount(units: int) -> Spending:
        return Spending(calls=units, tokens=units, usd=float(units))

    for number, wanted in attempts:
        task = number % tasks
        own, beside = amount(done[task]), amount(sum(done) - done[task])
        left = task_limits(budget, Fraction(1, tasks), others=amount(others), beside=beside, own=own)
        assert left.usd is not None
        done[task] += max(0, min(wanted, left.calls or 0, left.tokens or 0, int(left.usd)))
    assert sum(done) <= max(0, limit - others)


def test_a_task_has_its_part_of_what_was_left_before_its_stage() -> None:
    budget = BudgetGroup(max_calls=100, max_usd=10.0)
    others, beside = Spending(calls=20, usd=2.0), Spending(calls=19, usd=1.0)
    third = task_limits(budget, Fraction(1, 3), others=others, beside=beside, own=Spending(calls=6, usd=0.5))
    assert (third.calls, third.tokens) == (26 - 6, None)
    assert third.usd == pytest.approx(8.0 / 3 - 0.5)
    # No more than is left now, and one call while there is any.
    assert task_limits(budget, Fraction(1), others=others, beside=beside, own=Spending()).calls == 61
    late = task_limits(budget, Fraction(1, 9), others=Spending(calls=98), beside=Spending(), own=Spending())
    assert late.calls == 1


def test_a_limit_that_is_used_up_is_named() -> None:
    assert remaining_limits(BudgetGroup(), Spending(calls=10**9)).used_up == ""
    assert (
        remaining_limits(BudgetGroup(max_calls=3), Spending(calls=1), Spending(calls=2)).used_up == "budget.max_calls"
    )
    assert remaining_limits(BudgetGroup(max_tokens=3), Spending(tokens=9)).used_up == "budget.max_tokens"
    # What nobody can count is not spent any further.
    assert remaining_limits(BudgetGroup(max_usd=3.0), Spending(usd=None)).used_up == "budget.max_usd"
    assert RemainingLimits(7, None, 1.0).over(3) == RemainingLimits(2, None, 1.0 / 3)
    assert RemainingLimits(1, None, None).over(3).calls == 1
    assert RemainingLimits(7, 5, None).plus(RemainingLimits(2, 1, None), -1) == RemainingLimits(5, 4, None)
