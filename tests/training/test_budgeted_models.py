import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Semaphore

import pytest

from skillopt_airflow.core.errors import BudgetUsedUp
from skillopt_airflow.core.types import Message
from skillopt_airflow.optimizer.readiness import check_answers
from skillopt_airflow.training.budget_lease import BudgetLease
from skillopt_airflow.training.budgeted_models import BudgetedOptimizer, BudgetedTarget, Turns
from tests.training.in_process import InProcessOptimizer, Training, call


class Crowded:
    """A target that counts the questions that it works on at the same time."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._lock, self._pause = threading.Lock(), threading.Event()

    def ask(self, stage: str, messages: Sequence[Message], pictures: object) -> str:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)
        self._pause.wait(0.02)
        with self._lock:
            self.now -= 1
        return stage


def test_no_more_questions_are_asked_at_the_same_time_than_there_are_turns() -> None:
    training, target = Training.of(), Crowded()
    training.prepare()
    with BudgetLease(training.run, "work").part() as part, ThreadPoolExecutor(8) as pool:
        asked = BudgetedTarget(target, Turns(part, Semaphore(3)))
        assert list(pool.map(lambda number: asked.ask(str(number), [], {}), range(24))) == list(map(str, range(24)))
    assert target.most == 3


def test_a_question_that_takes_several_calls_costs_as_many() -> None:
    training = Training.of(budget__max_calls=160)
    training.prepare()
    with BudgetLease(training.run, "work").part("optimizer") as part:
        turns = Turns(part, Semaphore(1))
        for calls in (1, 3):
            with turns.turn():
                for _ in range(calls):
                    turns.count(call("optimizer", "reflect", 4))
        assert part.counted.calls == 4
        # Of the first ten, it asks for more when four are used up and six more.
        for _ in range(6):
            with turns.turn():
                turns.count(call("optimizer", "reflect", 4))
        assert part.used.calls == 0
        with turns.turn():
            assert part.used.calls == 10


def test_the_optimizer_is_not_asked_beyond_the_budget() -> None:
    training = Training.of(budget__max_calls=2)
    training.prepare()
    with BudgetLease(training.run, "work").part("optimizer") as part:
        turns = Turns(part, Semaphore(3))
        asked = BudgetedOptimizer(InProcessOptimizer(training.models, turns.count), turns)
        for _ in range(2):
            check_answers(asked)
        with pytest.raises(BudgetUsedUp, match=r"^budget\.max_calls is used up$"):
            check_answers(asked)
