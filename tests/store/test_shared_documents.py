from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from skillopt_airflow.core.documents import Document
from skillopt_airflow.core.errors import StoreError, StoreUnavailable
from skillopt_airflow.store import shared_documents
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.shared_documents import change_document
from tests.store.test_write_probe import Careless
from tests.training.local_store import LocalStore

KEY = "runs/b/r/count.json"


class Count(Document):
    value: int = 0


def raised(count: Count) -> tuple[Count, int]:
    return Count(value=count.value + 1), count.value


def test_writers_at_the_same_time_lose_nothing_of_each_other(store: ObjectStore) -> None:
    writers, each = 6, 5
    together = Barrier(writers)

    def write(_: int) -> list[int]:
        together.wait()
        return [change_document(store, KEY, Count(), raised) for _ in range(each)]

    with ThreadPoolExecutor(writers) as pool:
        seen = sorted(value for values in pool.map(write, range(writers)) for value in values)
    # Each change was made on what exactly one other left.
    assert seen == list(range(writers * each))
    assert store.get_model(KEY, Count).value == writers * each
    assert store.list_keys("runs/") == [KEY]


def test_what_changes_nothing_is_not_written() -> None:
    store = LocalStore()
    assert change_document(store, KEY, Count(), lambda count: (count, count.value)) == 0
    assert store.objects == {}


@pytest.mark.parametrize("times", [3, 10**6])
def test_a_store_that_is_away_for_a_moment_is_asked_again_and_given_up_if_it_stays_away(
    times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, left = LocalStore(), [times]

    def fail(key: str) -> None:
        left[0] -= 1
        if left[0] >= 0:
            raise StoreUnavailable("away")

    store.before_read = fail
    if times == 3:
        assert change_document(store, KEY, Count(), raised) == 0
        return
    monkeypatch.setattr(shared_documents, "PATIENCE", 0.05)
    with pytest.raises(StoreUnavailable, match="away"):
        change_document(store, KEY, Count(), raised)


def test_a_store_that_passes_over_the_condition_is_refused_before_anything_depends_on_it() -> None:
    store = Careless()
    with pytest.raises(StoreError, match="If-Match"):
        change_document(store, KEY, Count(), raised)
    assert store.objects == {}
