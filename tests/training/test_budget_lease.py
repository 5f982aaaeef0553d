import math
import multiprocessing
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any
from unittest.mock import Mock

import pytest

from skillopt_airflow.core.budget import Spent
from skillopt_airflow.core.budget_ledger import LEASE_SECONDS, PARTS, RENEWED_SECONDS, BudgetLedger
from skillopt_airflow.core.errors import Conflict, StoreError
from skillopt_airflow.core.wire_formats.wire_format import Tokens
from skillopt_airflow.gateway.remaining_budget import Allowance, BudgetSpent, RemainingBudget
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.training import budget_lease
from skillopt_airflow.training.budget_lease import BudgetLease, BudgetPart, reserve_job, settle_job
from skillopt_airflow.training.run import TrainingRun
from tests.gateway.scripted_provider import ScriptedProvider, completion
from tests.store.test_write_probe import Careless
from tests.training import spending_host
from tests.training.in_process import InProcessConnections, Training, call, configured

Limited = Callable[..., TrainingRun]
PRICES = {f"openai-chat:stand-in-{role}": {"input": 1.0, "output": 4.0} for role in ("target", "optimizer")}


@pytest.fixture(scope="module")
def prepared() -> Training:
    """A run that nothing was spent for."""
    training = Training.of(evaluation__eval_test=False, budget__prices=PRICES)
    training.prepare()
    return training


@pytest.fixture
def limited(prepared: Training) -> Limited:
    """The run with a budget, in a store of this test's own."""

    def make(**limits: float) -> TrainingRun:
        connections = InProcessConnections()
        connections.store.objects = dict(prepared.store.objects)
        overrides = {f"budget.{name}": value for name, value in limits.items()}
        return TrainingRun(prepared.run.ref.model_copy(update={"overrides": overrides}), connections)

    return make


def ledger(run: TrainingRun) -> BudgetLedger:
    return run.store.get_model(run.keys.budget(run.account), BudgetLedger)


class Clock:
    """The time that leases see, moved on by hand."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def time(self) -> float:
        return time.time() + self.ahead


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    moved = Clock()
    monkeypatch.setattr(budget_lease, "time", moved)
    return moved


def call_until(part: BudgetPart, most: float = math.inf) -> int:
    """How many calls were made, at most so many."""
    allowance, made = Allowance(part.budget, part.more), 0
    while made < most:
        try:
            allowance.take()
        except BudgetSpent:
            break
        made += 1
        part.count(call("target", "rollout", 4))
    return made


def stored(run: TrainingRun, calls: int) -> None:
    """Have the run's table hold so many calls, whoever made them."""
    run.usage.append("searchqa", run.account, [call("target", "rollout", 4)] * calls, run.timeline[0])


def test_without_limits_nothing_is_asked_and_nothing_stored(limited: Limited) -> None:
    run, touched = limited(), list[str]()
    assert run.record
    run.store.before_read = run.store.before_write = touched.append  # type: ignore[attr-defined]
    lease = BudgetLease(run, "work")
    with lease.part() as part, lease.part(share=4) as pod:
        for one in (part, pod):
            assert one.budget == RemainingBudget()
            allowance = Allowance(one.budget, one.more)
            allowance.take()
            one.count(call("target", "rollout", 400))
    lease.renew()
    lease.settle()
    assert touched == []


def test_a_part_reserves_before_it_spends_and_gives_back_what_it_did_not(limited: Limited) -> None:
    run = limited(max_calls=1600, max_usd=16.0)
    lease = BudgetLease(run, "work")
    with lease.part() as part:
        allowance = Allowance(part.budget, part.more)
        allowance.take()
        [held] = ledger(run).leases.values()
        assert held.reserved == Spent(calls=100, usd=1.0)
        made = call("target", "rollout", 400_000)
        allowance.spend(Tokens(made.prompt_tokens, made.completion_tokens))
        part.count(made)
    run.usage.append("searchqa", run.account, [made], run.timeline[0])
    lease.settle()
    after = ledger(run)
    assert (after.spent.calls, after.leases) == (1, {})
    assert after.spent.usd == pytest.approx(0.1 + 20 * 4e-6)


def test_asking_in_vain_spends_nothing(limited: Limited, monkeypatch: pytest.MonkeyPatch) -> None:
    run = limited(max_calls=160)
    lease = BudgetLease(run, "work")
    with lease.part() as part:
        assert call_until(part, 10) == 10
        allowance = Allowance(part.budget.minus(calls=10), part.more)
        with monkeypatch.context() as patched:
            patched.setattr(run.store, "replace", Mock(side_effect=StoreError("access denied")))
            for _ in range(20):
                with pytest.raises(StoreError):
                    allowance.take()
        allowance.take()
        [held] = ledger(run).leases.values()
        assert held.reserved.calls == 10 + (160 - 10) // PARTS


def test_a_call_that_was_given_back_after_more_was_granted_blocks_nothing(limited: Limited) -> None:
    run = limited(max_calls=1600, max_tokens=16_000)
    lease = BudgetLease(run, "work")
    with lease.part() as part:
        granted = part.more(part.budget)
        # A call of before the grant was not made after all, and the tokens of others are used up.
        more = part.more(granted.minus(calls=-1, completion_tokens=1000))
        [held] = ledger(run).leases.values()
    assert not more.used_up()
    assert held.reserved.tokens == 1000 + (16_000 - 1000) // PARTS


def test_the_stored_calls_are_read_once_and_again_after_a_death(limited: Limited) -> None:
    run, reads = limited(max_calls=1000), list[str]()
    run.store.list_keys = lambda prefix: reads.append(prefix) or []  # type: ignore[method-assign, func-returns-value]
    for number in range(5):
        lease = BudgetLease(run, f"work {number}")
        with lease.part() as part:
            call_until(part, 3)
        lease.settle()
    assert len(reads) == 1
    assert ledger(run).spent.calls == 15
    with BudgetLease(run, "died").part(share=4):
        pass
    again = BudgetLease(run, "died")
    with again.part() as part:
        call_until(part, 1)
    again.settle()
    assert len(reads) == 2


def test_a_batch_job_counts_once_though_the_answer_to_its_settling_is_lost(
    limited: Limited, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, calls = limited(max_calls=20), [call("target", "rollout", 40)] * 7
    reserve_job(run, "job", 7)
    run.usage.append("searchqa", run.account, calls, run.timeline[0])
    replace = run.store.replace

    def losing(key: str, body: bytes, etag: str) -> None:
        replace(key, body, etag)
        monkeypatch.undo()
        # As botocore, which has tried again by itself, and met what it wrote.
        raise Conflict(key)

    monkeypatch.setattr(run.store, "replace", losing)
    settle_job(run, "job", calls)
    assert not ledger(run).leases
    with BudgetLease(run, "work").part(share=1) as part:
        assert part.budget.calls == 13


def test_many_at_the_same_time_make_exactly_the_calls_of_the_budget(limited: Limited) -> None:
    run, tasks = limited(max_calls=150), 6
    together = Barrier(tasks)

    def spend(number: int) -> int:
        lease = BudgetLease(run, f"work {number}")
        with lease.part() as part:
            together.wait()
            made = call_until(part)
        stored(run, made)
        lease.settle()
        return made

    with ThreadPoolExecutor(tasks) as pool:
        made = sum(pool.map(spend, range(tasks)))
    # What one had reserved and given back when the others had ended, nobody came for.
    assert 150 - 150 // 16 <= made <= 150
    assert (ledger(run).spent.calls, ledger(run).leases) == (made, {})


def test_what_a_dead_task_did_not_spend_is_free_again(limited: Limited, clock: Clock) -> None:
    run = limited(max_calls=160)
    with BudgetLease(run, "work").part(share=1) as dead:
        assert dead.budget.calls == 160
    stored(run, 5)
    with BudgetLease(run, "other").part(share=1) as part:
        assert part.budget.used_up() == "budget.max_calls"
    clock.ahead = LEASE_SECONDS + 1
    with BudgetLease(run, "other").part(share=1) as part:
        assert part.budget.calls == 155


def test_whoever_begins_a_dead_tasks_work_anew_need_not_wait_for_that(limited: Limited) -> None:
    run = limited(max_calls=160)
    with BudgetLease(run, "work").part(share=1) as dead, BudgetLease(run, "work 2").part() as other:
        stored(run, 5)
        assert other.more(other.budget).used_up() == "budget.max_calls"
        with BudgetLease(run, "work").part() as again:
            assert again.more(again.budget).calls == 155 // 16
        # The former attempt was cut off, and lives: it goes on with what is left.
        assert dead.more(RemainingBudget(calls=0)).calls == (155 - 155 // 16) // 16


def test_a_task_that_lives_is_heard_of(limited: Limited, clock: Clock) -> None:
    run = limited(max_calls=160)
    lease, other = BudgetLease(run, "one"), BudgetLease(run, "other")
    with lease.part(share=2) as part:
        for _ in range(6):
            clock.ahead += RENEWED_SECONDS + 1
            lease.renew()
        with other.part(share=1) as rest:
            assert (part.budget.calls, rest.budget.calls) == (80, 80)


def test_a_task_whose_lease_has_expired_goes_on_with_another(limited: Limited, clock: Clock) -> None:
    run = limited(max_calls=160)
    slow, other = BudgetLease(run, "slow"), BudgetLease(run, "other")
    with slow.part() as part:
        stored(run, call_until(part, 4))
        clock.ahead = LEASE_SECONDS + 1
        with other.part(share=1) as rest:
            assert rest.budget.calls == 156
        other.settle()
        given = part.more(RemainingBudget(calls=6))
        assert given.calls == 156 // 16
        assert [lease.reserved.calls for lease in ledger(run).leases.values()] == [156 // 16]


def test_a_store_that_ignores_conditions_is_refused_with_a_sentence(limited: Limited) -> None:
    run = limited(max_calls=9)
    careless = Careless()
    careless.objects = run.store.objects  # type: ignore[attr-defined]
    run.store = careless
    with BudgetLease(run, "work").part() as part, pytest.raises(StoreError, match="use a store with conditional"):
        part.more(part.budget)


def test_a_training_ends_within_its_budget_whatever_stage_it_is_in() -> None:
    """The rollouts here ask no gateway, so the optimizer alone is held back."""

    def roles(training: Training) -> list[str]:
        training()
        return [row.call.role for row in training.run.usage.read("searchqa", training.run.account)]

    small = {"evaluation__eval_test": False, "train__num_epochs": 1}
    first = roles(Training.of(**small)).index("optimizer") + 1
    tight = Training.of(**small, budget__max_calls=first)
    assert roles(tight).count("optimizer") == 1
    assert "budget.max_calls" in tight.state.stopped
    # With a larger budget it would be asked again.
    assert not [key for key in tight.store.objects if key.endswith(".unusable")]


@pytest.fixture
def provider() -> Iterator[ScriptedProvider]:
    pause = multiprocessing.get_context("spawn").Event()

    def answer(_: Any) -> Any:
        pause.wait(0.02)
        return completion("x")

    with ScriptedProvider(answer) as server:
        yield server


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("killed", [False, True])
def test_hosts_that_share_nothing_but_the_object_store_make_no_more_calls_than_the_budget_has(
    store: ObjectStore, s3_endpoint: str, provider: ScriptedProvider, tmp_path: Path, clock: Clock, killed: bool
) -> None:
    most, hosts, context = 400, 3, multiprocessing.get_context("forkserver")
    # All of them fork from one process that has imported what they need.
    context.set_forkserver_preload(["tests.training.spending_host"])
    training = Training(configured("searchqa", {"budget.max_calls": most}), name="hosts", store=store)  # type: ignore[arg-type]
    training.prepare()
    running = []
    for number in range(hosts):
        folder = tmp_path / str(number)
        folder.mkdir()
        arguments = (s3_endpoint, store.bucket, "hosts", provider.base_url, str(folder))
        running.append(context.Process(target=spending_host.spend, args=arguments))
        running[-1].start()
    if killed:
        while len(provider.requests) < most // 4:
            time.sleep(0.01)
        running[0].kill()
    for process in running:
        process.join()
    assert [process.exitcode for process in running] == [-9 if killed else 0, 0, 0]

    made = len(provider.requests)
    assert made <= most
    stored = len(list(training.run.usage.calls("searchqa", "hosts")))
    # All that the killed one can have made and not stored.
    unstored = spending_host.STORED_EVERY + spending_host.IN_FLIGHT
    assert (0 <= made - stored < unstored) if killed else made == stored
    clock.ahead = LEASE_SECONDS + 1
    with BudgetLease(training.run, "afterwards").part(share=1) as part:
        assert part.budget.calls == most - stored
