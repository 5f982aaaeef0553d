from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from skillopt_airflow.core.errors import BudgetUsedUp, StoreError
from skillopt_airflow.core.run.budget import total_spending
from skillopt_airflow.core.values.pictures import NO_PICTURES
from skillopt_airflow.core.values.types import Message
from skillopt_airflow.gateway.remaining_budget import RemainingBudget
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.spending import AHEAD, BudgetShare, limits_of_run, share_records, stop_reason_at
from skillopt_airflow.training.run.stage_models import open_assistants
from tests.training.in_process import InProcessConnections, Training, call
from tests.training.local_store import LocalStore

PRICES = {
    "openai-chat:stand-in-target": {"input": 1.0, "output": 4.0},
    "openai-chat:stand-in-optimizer": {"input": 10.0, "output": 40.0},
}


@pytest.fixture(scope="module")
def training() -> Training:
    """A run that has paid a good part of its budget."""
    limits = {"budget__max_calls": 10_000, "budget__max_tokens": 10_000_000, "budget__max_usd": 100.0}
    trained = Training.of(**limits, budget__prices=PRICES, train__num_epochs=1, evaluation__eval_test=False)
    trained()
    return trained


def test_a_run_has_left_what_no_call_of_target_and_optimizer_cost(training: Training) -> None:
    run = training.run
    rows = [row.call for row in run.usage.read(run.ref.benchmark, run.ref.run)]
    total = total_spending(rows, run.record.prices)
    assert {call.role for call in rows} == {"target", "optimizer"}
    left = limits_of_run(run)
    assert (left.calls, left.tokens) == (10_000 - total.calls, 10_000_000 - total.tokens)
    assert total.usd is not None
    assert left.usd == pytest.approx(100.0 - total.usd)


@pytest.mark.nightly
def test_a_gate_that_is_decided_again_sees_nothing_of_what_was_spent_later() -> None:
    free = Training.of()
    free()
    total = sum(row.call.attempts for row in free.run.usage.read(free.run.ref.benchmark, free.run.ref.run))
    limited = Training.of(budget__max_calls=total)
    limited()
    run = limited.run
    assert run.timeline[-2].kind == "slow_update"
    assert [stop_reason_at(run, moment) for moment in run.timeline[1:-2]] == [""] * 5


EQUAL_PRICES = {f"openai-chat:stand-in-{role}": {"input": 1.0, "output": 4.0} for role in ("target", "optimizer")}
PREPARED: list[Training] = []
CALL = call("target", "rollout", 400)


def limited(**limits: float) -> TrainingRun:
    """A run with a budget of which nothing is spent, in a store of its own."""
    if not PREPARED:
        PREPARED.append(Training.of(evaluation__eval_test=False, budget__prices=EQUAL_PRICES))
        PREPARED[0].prepare()
    connections = InProcessConnections()
    connections.store.objects = dict(PREPARED[0].store.objects)
    overrides = {f"budget.{name}": value for name, value in limits.items()}
    return TrainingRun(PREPARED[0].run.ref.model_copy(update={"overrides": overrides}), connections)


def share(run: TrainingRun, task: str = "0", parts: int = 1, stage: str = "evaluate") -> BudgetShare:
    return BudgetShare(run, run.timeline[1], stage, task, Fraction(1, parts))


def store_of(run: TrainingRun) -> LocalStore:
    assert isinstance(run.store, LocalStore)
    return run.store


def begun(one: BudgetShare, most: int) -> int:
    """How many calls of so many may be made."""
    for number in range(most):
        try:
            one.begin()
        except BudgetUsedUp:
            return number
        one.count(CALL)
    return most


class Stage:
    """Tasks of a stage that spend, die and begin again; it knows how many calls were really made."""

    def __init__(self, run: TrainingRun, name: str, tasks: int) -> None:
        self._run, self._name, self._tasks = run, name, tasks
        self._attempts: dict[int, BudgetShare] = {}
        self._unstored: dict[int, int] = {}
        self._stored = 0
        self.made = self.lost = 0

    def attempt(self, task: int) -> BudgetShare:
        if task not in self._attempts:
            self._attempts[task], self._unstored[task] = share(self._run, str(task), self._tasks, self._name), 0
        return self._attempts[task]

    def spend(self, task: int, calls: int) -> None:
        self._add(task, begun(self.attempt(task), calls))

    def serve(self, task: int, calls: int, gateways: int, *, dies: bool) -> None:
        """A gateway of several makes calls; of one that dies none are reported."""
        with self.attempt(task).gateway(gateways, 20) as given:
            assert given.budget.calls is not None
            made = min(calls, given.budget.calls)
            self.made += made
            if dies:
                return
            for _ in range(made):
                given.count(CALL)
            given.complete()
        self._unstored[task] += made

    def store(self, task: int) -> None:
        # Equal calls are one part, and no two calls are equal.
        self._stored += 1
        made = [CALL.model_copy(update={"started": float(self._stored)})] * self._unstored[task]
        self.attempt(task).store(made)
        self._unstored[task] = 0

    def close(self, task: int) -> None:
        self.attempt(task)
        self.store(task)
        self._attempts.pop(task).close()

    def die(self, task: int) -> None:
        self._attempts.pop(task, None)

    def end(self) -> None:
        for task in list(self._attempts):
            self.close(task)

    def _add(self, task: int, made: int) -> None:
        self.made += made
        self._unstored[task] += made


@settings(max_examples=60, deadline=None)
@given(
    most=st.integers(1, 60),
    tasks=st.integers(1, 4),
    events=st.lists(
        st.tuples(
            st.sampled_from(["spend", "serve", "serve and die", "store", "close", "die", "next stage"]),
            st.integers(0, 3),
            st.integers(0, 30),
        ),
        max_size=25,
    ),
)
def test_no_call_is_made_beyond_the_budget_whatever_dies(
    most: int, tasks: int, events: list[tuple[str, int, int]]
) -> None:
    run = limited(max_calls=most)
    stages = [Stage(run, "0", tasks)]
    for event, number, amount in events:
        stage, task = stages[-1], number % tasks
        if event == "spend":
            stage.spend(task, amount)
        elif event.startswith("serve"):
            stage.serve(task, amount, 1 + amount % 3, dies=event == "serve and die")
        elif event == "next stage":
            stage.end()
            stages.append(Stage(run, str(len(stages)), tasks))
        else:
            stage.attempt(task)
            getattr(stage, event)(task)
        made = sum(one.made for one in stages)
        assert made <= most
        left = limits_of_run(run).calls
        assert left is not None
        assert 0 <= left <= most - len(list(run.usage.rows("searchqa", run.account)))
    stages[-1].end()
    # What is left may all be spent, and nothing else.
    left = limits_of_run(run).calls
    assert begun(share(run, stage="last"), most + 1) == left
    assert sum(one.made for one in stages) + left <= most


@settings(max_examples=40, deadline=None)
@given(most=st.integers(1, 40), at=st.integers(0, 12), parts=st.integers(1, 2))
def test_two_that_take_at_the_same_time_have_no_more_than_the_budget(most: int, at: int, parts: int) -> None:
    """Also where a stage has more tasks at the same time than parts."""
    run, other, accesses = limited(max_calls=most), list[int](), iter(range(100))
    one, beside = share(run, "0", parts), share(run, "1", parts)

    def meanwhile(key: str) -> None:
        if next(accesses) == at:
            other.append(begun(beside, most))

    assert run.record
    store = store_of(run)
    store.before_read = store.before_write = meanwhile
    mine = begun(one, most)
    assert mine + sum(other) <= most


def test_without_limits_nothing_is_asked_and_nothing_stored() -> None:
    run, touched = limited(), list[str]()
    assert run.record
    store_of(run).before_read = store_of(run).before_write = touched.append
    one = share(run)
    assert begun(one, 500) == 500
    with one.gateway(1, 4) as given:
        assert given.budget == RemainingBudget(input_price=1.0, output_price=4.0)
        given.count(CALL)
    one.close()
    assert touched == []


def test_a_share_is_recorded_before_it_is_spent_and_free_once_its_calls_are_stored() -> None:
    run = limited(max_calls=1000)
    one = share(run)
    assert begun(one, 1) == 1
    [record] = share_records(run).values()
    assert (record.calls, record.moment) == (AHEAD, run.timeline[1].name)
    assert begun(one, AHEAD) == AHEAD
    assert [record.calls for record in share_records(run).values()] == [2 * AHEAD]
    one.store([CALL] * (AHEAD + 1))
    one.close()
    assert not share_records(run)
    assert limits_of_run(run).calls == 1000 - AHEAD - 1


def test_calls_that_nobody_stored_stay_spent() -> None:
    run = limited(max_calls=1000)
    one = share(run)
    assert begun(one, 9) == 9
    one.store([CALL] * 4)
    one.close()
    assert limits_of_run(run).calls == 1000 - 9
    # So does what a task held that died, and no step is begun for which it leaves no room.
    assert begun(share(run, "1"), 1) == 1
    assert limits_of_run(run).calls == 1000 - 9 - AHEAD
    tight = TrainingRun(run.ref.model_copy(update={"overrides": {"budget.max_calls": 9 + AHEAD}}), run.connections)
    assert stop_reason_at(tight, run.timeline[1]).startswith("budget.max_calls")


def test_each_task_of_a_stage_has_its_part_whenever_it_begins() -> None:
    run = limited(max_calls=40, max_usd=1.0)
    first, second = share(run, "0", 4), share(run, "1", 4)
    with first.gateway(1, 10**6) as given:
        assert (given.budget.calls, given.budget.usd) == (10, 0.25)
        with second.gateway(2, 10**6) as half:
            assert (half.budget.calls, half.budget.usd) == (5, 0.125)
        with second.gateway(1, 10**6) as rest:
            # The first of the two has not told whether it made its calls.
            assert (rest.budget.calls, rest.budget.usd) == (5, 0.25)
    again = share(run, "0", 4)
    assert begun(again, 1) == 0
    assert begun(share(run, "2", 4), 11) == 10


def test_a_gateway_gets_no_more_than_its_items_can_take() -> None:
    with share(limited(max_calls=40)).gateway(1, 6) as given:
        assert given.budget.calls == 6


def test_tokens_and_dollars_are_those_of_the_calls() -> None:
    run = limited(max_tokens=1000, max_usd=0.001)
    one = share(run)
    one.begin()
    one.count(CALL.model_copy(update={"prompt_tokens": 900, "completion_tokens": 20}))
    one.begin()
    one.count(CALL.model_copy(update={"prompt_tokens": 30, "completion_tokens": 0}))
    with pytest.raises(BudgetUsedUp, match=r"^budget\.max_usd is used up$"):
        one.begin()
    assert not share_records(run)


def test_nobody_spends_what_cannot_be_recorded() -> None:
    run = limited(max_calls=10)
    one = share(run)

    def refuse(key: str) -> None:
        raise StoreError("access denied")

    store_of(run).before_write = refuse
    with pytest.raises(StoreError):
        one.begin()
    store_of(run).before_write = lambda key: None
    assert begun(one, 11) == 10


def test_questions_of_a_stage_are_within_its_budget_and_wait_for_their_turn() -> None:
    training = Training.of(budget__max_calls=2)
    training.prepare()
    with open_assistants(training.run, training.run.timeline[1], "reflect") as models:

        def ask(question: str) -> None:
            messages = [Message(role="system", content="Answer."), Message(role="user", content=question)]
            models.target.ask("reflect", messages, NO_PICTURES)

        ask("one?")
        ask("two?")
        with pytest.raises(BudgetUsedUp):
            ask("three?")
        # The answer is stored.
        ask("two?")
    assert limits_of_run(training.run).used_up == "budget.max_calls"


def test_a_training_ends_within_its_budget_whatever_stage_it_is_in() -> None:
    """The rollouts here ask no gateway, so the optimizer alone is held back."""

    def roles(training: Training) -> list[str]:
        training()
        return [row.call.role for row in training.run.usage.read("searchqa", training.run.account)]

    small = {"evaluation__eval_test": False, "train__num_epochs": 1, "preflight": False}
    first = roles(Training.of(**small)).index("optimizer") + 1
    tight = Training.of(**small, budget__max_calls=first)
    assert roles(tight).count("optimizer") == 1
    assert "budget.max_calls" in tight.state.stopped
    # With a larger budget it would be asked again.
    assert not [key for key in tight.store.objects if key.endswith(".unusable")]
    assert not share_records(tight.run)


def test_with_a_budget_no_tasks_run_beside_each_other_and_the_seed_is_tested_at_the_end() -> None:
    training = Training.of(budget__max_calls=10_000, train__num_epochs=1, train__speculative_rollout=True)
    free = Training.of(train__num_epochs=1, train__speculative_rollout=True)
    assert training() == free()
    assert (training.rollouts["speculate"], free.rollouts["speculate"] > 0) == (0, True)
    assert training.rollouts["test"] == free.rollouts["test"]
    assert training.done["plan_seed_test"] == []
