import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from skillopt_airflow.core.looks import Look, Question
from skillopt_airflow.core.types import Split
from skillopt_airflow.store.artifacts import LookLedger
from skillopt_airflow.store.keys import ArtifactKeys
from skillopt_airflow.store.objects import ObjectStore

KEYS = ArtifactKeys("", "searchqa", "openai-chat:m")
RIVAL = "b" * 64


def ask(ledger: LookLedger, candidate: str, run: str = "run", records: str = "abc") -> Look:
    question = Question(candidate=candidate, rival=RIVAL, draws=1, metric="hard", policy="mcnemar", alpha=0.05)
    return ledger.enter([*records], question, Split.TEST, 120, run, "publication")


def test_each_question_is_a_look_and_asked_again_the_same_one(store: ObjectStore) -> None:
    ledger = LookLedger(store, KEYS)
    first, second = ask(ledger, "a"), ask(ledger, "c")
    assert (first.number, second.number) == (1, 2)
    assert ask(ledger, "a", run="another") == first
    assert ledger.last("abc") == 2


def test_splits_that_share_a_record_share_a_ledger(store: ObjectStore) -> None:
    ledger = LookLedger(store, KEYS)
    asked = [("a", "abc"), ("c", "abcd"), ("d", "cx"), ("e", "yz"), ("f", "xy"), ("g", "b"), ("a", "yz")]
    # The second grew, the third is another sample of the same file, the fourth is new, and the fifth has parts of both.
    assert [ask(ledger, candidate, records=records).number for candidate, records in asked] == [1, 2, 3, 1, 4, 3, 5]
    assert [ledger.last(records) for records in ("a", "c", "x", "z", "other")] == [2, 3, 4, 5, 0]


def test_where_no_records_are_known_all_looks_count_and_keep_their_numbers(store: ObjectStore) -> None:
    ledger = LookLedger(store, KEYS)
    assert [ask(ledger, "a").number, ask(ledger, "c", records="").number] == [1, 2]
    assert ask(ledger, "d", records="xyz").number == 3
    store.delete(KEYS.look(1))
    assert ask(ledger, "e", records="xyz").number == 4


@pytest.mark.parametrize("candidates", [["a", "c", "d", "e"], ["a", "a", "c", "c"]])
def test_publishers_at_the_same_moment_take_no_number_twice(store: ObjectStore, candidates: list[str]) -> None:
    ledger, start = LookLedger(store, KEYS), threading.Barrier(len(candidates))

    def enter(place: int) -> Look:
        start.wait(60)
        return ask(ledger, candidates[place], run=f"run {place}", records=f"a{place}")

    with ThreadPoolExecutor(len(candidates)) as pool:
        looks = list(pool.map(enter, range(len(candidates))))
    numbers = {look.question.candidate: look.number for look in looks}
    assert sorted(numbers.values()) == list(range(1, len(set(candidates)) + 1))
    assert ledger.last("a") == len(numbers)
