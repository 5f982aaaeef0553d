import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from skillopt_airflow.core.looks import Look, Question
from skillopt_airflow.core.types import Split
from skillopt_airflow.store.keys import ArtifactKeys
from skillopt_airflow.store.look_ledger import LookLedger
from skillopt_airflow.store.objects import ObjectStore

KEYS = ArtifactKeys("", "searchqa", "openai-chat:m")
RIVAL = "b" * 64


def ask(ledger: LookLedger, candidate: str, run: str = "run", fingerprint: str = "f") -> Look:
    question = Question(candidate=candidate, rival=RIVAL, draws=1, metric="hard", policy="mcnemar", alpha=0.05)
    return ledger.enter(fingerprint, question, Split.TEST, 120, run, "publication")


def test_each_question_is_a_look_and_asked_again_the_same_one(store: ObjectStore) -> None:
    ledger = LookLedger(store, KEYS)
    first, second = ask(ledger, "a"), ask(ledger, "c")
    assert (first.number, second.number) == (1, 2)
    assert ask(ledger, "a", run="another") == first
    assert ledger.looks("f") == [first, second]
    # Other items are another matter.
    assert ask(ledger, "a", fingerprint="g").number == 1


def test_behind_a_look_that_was_removed_the_others_keep_their_numbers(store: ObjectStore) -> None:
    ledger = LookLedger(store, KEYS)
    first, second = ask(ledger, "a"), ask(ledger, "c")
    store.delete(KEYS.look("f", first.number))
    assert ask(ledger, "d").number == second.number + 1


@pytest.mark.parametrize("candidates", [["a", "c", "d", "e"], ["a", "a", "c", "c"]])
def test_publishers_at_the_same_moment_take_no_number_twice(store: ObjectStore, candidates: list[str]) -> None:
    ledger, start = LookLedger(store, KEYS), threading.Barrier(len(candidates))

    def enter(place: int) -> Look:
        start.wait(60)
        return ask(ledger, candidates[place], run=f"run {place}")

    with ThreadPoolExecutor(len(candidates)) as pool:
        looks = list(pool.map(enter, range(len(candidates))))
    kept = ledger.looks("f")
    assert [look.number for look in kept] == list(range(1, len(set(candidates)) + 1))
    assert all(look in kept for look in looks)
    assert {look.question.candidate: look.number for look in looks} == {
        look.question.candidate: look.number for look in kept
    }
