"""Tasks that spend from one ledger in any order, die in the middle, and whose clocks differ."""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.budget import Spent
from skillopt_airflow.core.budget_ledger import LEASE_SECONDS, PARTS, RENEWED_SECONDS, BudgetLedger, Left
from skillopt_airflow.core.resource_groups import BudgetGroup

NOTHING = Spent()
EMPTY = BudgetLedger()
NONE = Left(0, 0, None)
TOKENS = 10
"""Most of one call."""


@dataclass
class Task:
    name: str
    clock: float
    """Seconds by which its host's clock is wrong."""
    work: str
    left: Left = NONE
    used: Spent = NOTHING
    unstored: Spent = NOTHING


@dataclass
class World:
    """A ledger, the table of stored calls, and the tasks."""

    budget: BudgetGroup
    ledger: BudgetLedger = EMPTY
    stored: Spent = NOTHING
    made: Spent = NOTHING
    lost: Spent = NOTHING
    """Calls that a task had made and not stored when it died."""
    now: float = 1e9
    tasks: list[Task] = field(default_factory=list)
    begun: int = 0
    asked: int = 0

    def begin(self, clock: float, work: str = "") -> None:
        self.begun += 1
        work = work or f"work-{self.begun}"
        self.tasks.append(Task(f"{work} {self.begun}", clock, work))

    def again(self, task: Task) -> None:
        """It dies, and another attempt at its work begins."""
        self.die(task)
        self.begin(task.clock, task.work)

    def ask(self, task: Task) -> None:
        self.asked += 1
        now = self.now + task.clock
        ledger = self.ledger.at(now)
        if task.name not in ledger.leases:
            ledger = ledger.taken_over(task.work)
        if ledger.is_to_be_counted:
            ledger = ledger.counted(self.stored)
        left = ledger.left(self.budget, task.name, task.used)
        task.left = left if left.used_up else left.part(PARTS)
        amount = task.used if left.used_up else task.used.plus(task.left.amount)
        self.ledger = ledger.reserved(task.name, amount, now)

    def call(self, task: Task, tokens: int) -> bool:
        """A call, if something is left; whether it was made."""
        if task.left.used_up:
            self.ask(task)
        if task.left.used_up:
            return False
        cost = Spent(calls=1, tokens=tokens)
        limited = task.left
        task.left = Left(
            None if limited.calls is None else limited.calls - 1,
            None if limited.tokens is None else limited.tokens - tokens,
            None,
        )
        task.used, task.unstored = task.used.plus(cost), task.unstored.plus(cost)
        self.made = self.made.plus(cost)
        return True

    def store(self, task: Task) -> None:
        self.stored = self.stored.plus(task.unstored)
        task.unstored = Spent()

    def settle(self, task: Task) -> None:
        self.store(task)
        self.ledger = self.ledger.ended(task.name, task.used)
        self.tasks.remove(task)

    def die(self, task: Task) -> None:
        self.lost = self.lost.plus(task.unstored)
        self.tasks.remove(task)

    def wait(self, seconds: float) -> None:
        """Those that live are heard of."""
        while seconds > 0:
            step = min(seconds, RENEWED_SECONDS)
            self.now, seconds = self.now + step, seconds - step
            for task in self.tasks:
                if task.name in self.ledger.leases:
                    held = self.ledger.leases[task.name].reserved
                    self.ledger = self.ledger.reserved(task.name, held, self.now + task.clock)


EVENTS = st.tuples(
    st.sampled_from(["begin", "call", "call", "call", "call", "store", "settle", "die", "again", "wait"]),
    st.integers(0, 5),
    st.integers(1, TOKENS),
)


def happen(world: World, event: str, number: int, amount: int) -> None:
    if event == "begin" or not world.tasks:
        # Up to ten minutes off.
        world.begin(clock=(amount - TOKENS / 2) / TOKENS * 1190)
        return
    task = world.tasks[number % len(world.tasks)]
    if event == "call":
        for _ in range(number + 1):
            world.call(task, amount)
    elif event == "wait":
        world.wait(amount * LEASE_SECONDS / 5)
    else:
        getattr(world, event)(task)


@given(st.lists(EVENTS, max_size=120), st.integers(1, 60), st.integers(1, 400))
def test_no_order_of_events_passes_a_limit_or_loses_a_part_of_it(
    events: list[tuple[str, int, int]], calls: int, tokens: int
) -> None:
    world = World(BudgetGroup(max_calls=calls, max_tokens=tokens))
    for event in events:
        happen(world, *event)
        # What a task had not stored when it died, nobody can know of.
        assert world.made.calls <= calls + world.lost.calls
        # A call's tokens are known when it ends, and here a task has one call at a time.
        assert world.made.tokens <= tokens + world.lost.tokens + TOKENS * world.begun
    for task in list(world.tasks):
        world.settle(task)
    world.wait(2 * LEASE_SECONDS)
    world.begin(clock=0.0)
    [last] = world.tasks
    while world.call(last, 1):
        pass
    # Whatever died or expired, the last one can spend all that is left.
    assert world.made.calls - world.lost.calls >= calls or world.made.tokens - world.lost.tokens >= tokens


@given(st.lists(st.sampled_from([0, 1, 2]), max_size=200), st.integers(1, 100))
def test_tokens_are_passed_by_no_more_than_the_calls_in_flight(order: list[int], tokens: int) -> None:
    world = World(BudgetGroup(max_calls=10_000, max_tokens=tokens))
    for _ in range(3):
        world.begin(clock=0.0)
    for number in order:
        world.call(world.tasks[number], TOKENS)
        assert world.made.tokens < tokens + len(world.tasks) * TOKENS


def test_few_requests_spend_a_large_budget() -> None:
    world = World(BudgetGroup(max_calls=10_000))
    world.begin(clock=0.0)
    while world.call(world.tasks[0], 1):
        pass
    assert world.made.calls == 10_000
    assert world.asked < 130


def test_a_limit_that_is_not_there_limits_nothing() -> None:
    left = BudgetLedger(spent=Spent(calls=10**9)).left(BudgetGroup(), "me", Spent())
    assert left == Left(None, None, None)
    assert not left.used_up
    assert left.part(PARTS) == left
    assert left.amount == Spent()


def test_dollars_are_shared_and_what_nobody_can_count_leaves_nothing_of_them() -> None:
    uncounted = BudgetLedger(spent=Spent(calls=1, usd=None))
    assert uncounted.left(BudgetGroup(max_usd=5.0), "me", Spent()).used_up
    assert uncounted.left(BudgetGroup(max_calls=5), "me", Spent()) == Left(4, None, None)
    ledger = BudgetLedger(spent=Spent(usd=1.0)).reserved("other", Spent(usd=2.0), now=0.0)
    assert ledger.left(BudgetGroup(max_usd=8.0), "me", Spent(usd=1.0)).usd == pytest.approx(4.0)
    assert ledger.left(BudgetGroup(max_usd=8.0), "other", Spent(usd=1.0)).usd == pytest.approx(6.0)


def test_an_equal_lease_is_written_again_only_after_a_while() -> None:
    first = BudgetLedger().reserved("me", Spent(calls=3), now=0.0)
    assert first.reserved("me", Spent(calls=3), now=RENEWED_SECONDS - 1) is first
    renewed = first.reserved("me", Spent(calls=3), now=RENEWED_SECONDS)
    assert renewed.leases["me"].until == RENEWED_SECONDS + LEASE_SECONDS
    assert first.reserved("me", Spent(calls=4), now=1.0) != first


def test_who_died_has_spent_all_that_it_held_until_somebody_counts() -> None:
    ledger = BudgetLedger().reserved("dead", Spent(calls=7), now=0.0)
    later = ledger.at(LEASE_SECONDS)
    assert (later.spent, dict(later.leases)) == (Spent(calls=7), {})
    assert later.is_to_be_counted
    assert later.counted(Spent(calls=2)).left(BudgetGroup(max_calls=10), "me", Spent()).calls == 8


def test_calls_are_counted_again_only_where_that_is_of_use() -> None:
    counted = BudgetLedger().counted(Spent(calls=2))
    assert not counted.is_to_be_counted
    assert not counted.reserved("me", Spent(calls=3), now=0.0).ended("me", Spent(calls=1)).is_to_be_counted
    other = counted.reserved("work 1", Spent(calls=3), now=0.0).reserved("other 1", Spent(calls=4), now=0.0)
    # Somebody else's calls are not all stored yet.
    doubtful = other.taken_over("work")
    assert (doubtful.spent.calls, doubtful.is_to_be_counted) == (5, False)
    assert doubtful.ended("other 1", Spent(calls=1)).is_to_be_counted
    assert counted.doubted().is_to_be_counted
