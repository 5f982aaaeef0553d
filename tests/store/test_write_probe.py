import pytest

from skillopt_airflow.core.errors import StoreError
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.write_probe import check_conditional_write
from tests.training.local_store import LocalStore

KEY = "runs/b/r/write_probe"


class Undeleting(LocalStore):
    def delete(self, key: str) -> None:
        raise StoreError("nothing is ever deleted here")


class Unconditional(LocalStore):
    """As S3 servers that pass over If-None-Match."""

    def create(self, key: str, body: bytes) -> None:
        self.put_bytes(key, body)


class Careless(LocalStore):
    """As S3 servers that pass over If-Match."""

    def replace(self, key: str, body: bytes, etag: str) -> None:
        self.put_bytes(key, body)


def test_nothing_is_left_of_a_try_or_of_an_interrupted_one(store: ObjectStore) -> None:
    check_conditional_write(store, KEY)
    assert store.list_keys("runs/") == []
    store.put_bytes(KEY, b"")
    check_conditional_write(store, KEY)
    assert store.list_keys("runs/") == []


@pytest.mark.parametrize(("store", "condition"), [(Unconditional(), "If-None-Match"), (Careless(), "If-Match")])
def test_a_store_that_passes_over_the_condition(store: LocalStore, condition: str) -> None:
    with pytest.raises(StoreError, match=rf"s3://local/runs/b/r/write_probe: .* {condition} protects"):
        check_conditional_write(store, KEY)
    assert store.objects == {}


def test_a_bucket_that_never_forgets_is_told_and_used(caplog: pytest.LogCaptureFixture) -> None:
    store = Undeleting()
    check_conditional_write(store, KEY)
    check_conditional_write(store, KEY)
    assert "nothing is ever deleted here" in caplog.text
