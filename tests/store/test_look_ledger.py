import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from skillopt_airflow.core.gate.run_gates import Look, Question
from skillopt_airflow.core.values.types import Split
from skillopt_airflow.store.artifacts import LookLedger
from skillopt_airflow.store.keys import ArtifactKeys
from skillopt_airflow.store.objects import ObjectStore

KEYS = ArtifactKeys("", "searchqa", "openai-chat:m")
RIVAL = "b" * 64


def ask(ledger: LookLedger, candidate: str, run: str = "run", marks: str = "abc", *, stored: bool = True) -> Look:
    question = Question(
        candidate=candidate, rival=RIVAL, samples=1, metric="hard", policy="exact_paired", alpha=0.05, settings=""
    )
    return ledger.enter([*marks], question, Split.TEST, run, "publication", stored=stored)


def test_each_question_is_a_look_and_asked_again_the_same_one(store: ObjectStore) -> None:
    ledger = LookLedger(store, KEYS)
    first, second = ask(ledger, "a"), ask(ledger, "c")
    assert (first.number, second.number) == (1, 2)
    assert ask(ledger, "a", run="another") == first
    assert ledger.next_number("abc") == 3


def test_where_the_rollouts_are_gone_the_same_question_is_another_look(store: ObjectStore) -> None:
    ledger = LookLedger(store, KEYS)
    assert ask(ledger, "a", stored=False).number == 1
    # A task that is tried again before it has rolled anything out.
    assert ask(ledger, "a", stored=False).number == 1
    assert ask(ledger, "a", run="another", stored=False).number == 2


def test_a_number_is_one_more_than_the_most_looks_that_an_item_had(store: ObjectStore) -> None:
    ledger = LookLedger(store, KEYS)
    asked = [("a", "abc"), ("c", "abcd"), ("d", "cx"), ("e", "yz"), ("f", "xy"), ("g", "b")]
    # The second grew, the third is another sample of the same file, the fourth is new, and the fifth has parts of both.
    assert [ask(ledger, candidate, marks=marks).number for candidate, marks in asked] == [1, 2, 3, 1, 2, 3]
    assert [ledger.next_number(marks) for marks in ("a", "c", "x", "z", "other")] == [3, 4, 3, 2, 1]
    store.delete(KEYS.look(1))
    assert ask(ledger, "h", marks="a").number == 2


@pytest.mark.parametrize("candidates", [["a", "c", "d", "e"], ["a", "a", "c", "c"]])
def test_publishers_at_the_same_moment_take_no_number_twice(store: ObjectStore, candidates: list[str]) -> None:
    ledger, start = LookLedger(store, KEYS), threading.Barrier(len(candidates))

    def enter(place: int) -> Look:
        start.wait(60)
        return ask(ledger, candidates[place], run=f"run {place}", marks=f"a{place}")

    with ThreadPoolExecutor(len(candidates)) as pool:
        looks = list(pool.map(enter, range(len(candidates))))
    numbers = {look.question.candidate: look.number for look in looks}
    assert sorted(numbers.values()) == list(range(1, len(set(candidates)) + 1))
    assert ledger.next_number("a") == len(numbers) + 1
