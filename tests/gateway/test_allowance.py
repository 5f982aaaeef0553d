from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from skillopt_airflow.core.wire_formats.wire_format import Tokens
from skillopt_airflow.gateway import remaining_budget
from skillopt_airflow.gateway.remaining_budget import Allowance, BudgetSpent, RemainingBudget


class Giver:
    """Gives what it has, one after the other, and then nothing."""

    def __init__(self, *given: RemainingBudget) -> None:
        self.given = list(given)
        self.heard: list[RemainingBudget] = []
        self.meanwhile: Callable[[], None] = lambda: None

    def more(self, left: RemainingBudget) -> RemainingBudget:
        self.heard.append(left)
        self.meanwhile()
        return self.given.pop(0) if self.given else left


def taken(spending: Allowance) -> int:
    """How many calls there are."""
    calls = 0
    try:
        while True:
            spending.take()
            calls += 1
    except BudgetSpent:
        return calls


def test_nobody_gives_more() -> None:
    spending = Allowance(RemainingBudget(calls=1))
    spending.take()
    assert not spending.take_at_once()
    with pytest.raises(BudgetSpent, match=r"^budget\.max_calls$"):
        spending.take()


def test_tokens_beyond_the_amount_are_told() -> None:
    giver = Giver(RemainingBudget(tokens=50))
    spending = Allowance(RemainingBudget(tokens=10), giver.more)
    spending.take()
    spending.spend(Tokens(20, 5))
    spending.take()
    assert [left.tokens for left in giver.heard] == [-15]
    # What ends while somebody asks counts for the new amount.
    giver.given, giver.meanwhile = [RemainingBudget(tokens=40)], lambda: spending.spend(Tokens(30, 0))
    spending.spend(Tokens(50, 0))
    spending.take()
    assert giver.heard[-1].tokens == 0
    assert taken(Allowance(RemainingBudget(calls=2))) == 2
    spending.spend(Tokens(10, 0))
    assert not spending.take_at_once()


def test_who_was_refused_does_not_ask_at_every_call(monkeypatch: pytest.MonkeyPatch) -> None:
    giver = Giver()
    spending = Allowance(RemainingBudget(calls=0), giver.more)
    assert [taken(spending) for _ in range(5)] == [0] * 5
    assert len(giver.heard) == 1
    monkeypatch.setattr(remaining_budget, "REFUSED_SECONDS", 0.0)
    other = Allowance(RemainingBudget(calls=0), giver.more)
    assert taken(other) == 0
    giver.given = [RemainingBudget(calls=1)]
    assert taken(other) == 1


def test_a_call_that_was_not_made_is_given_back() -> None:
    spending = Allowance(RemainingBudget(calls=1))
    spending.take()
    spending.give_back()
    assert taken(spending) == 1


def test_many_threads_take_each_call_once() -> None:
    giver = Giver(*[RemainingBudget(calls=7)] * 10)
    spending = Allowance(RemainingBudget(calls=0), giver.more)
    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(lambda _: taken(spending), range(8))) == 70
