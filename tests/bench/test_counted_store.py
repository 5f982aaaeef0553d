"""Every request to the object store is counted, with the bytes of its body, on both of its ways."""

from typing import TYPE_CHECKING, Any

import pytest

from bench.counted_store import CountedPlace, Used
from bench.large_run import Place
from skillopt_airflow.core.errors import ObjectMissing
from skillopt_airflow.store.objects import ObjectStore
from tests.store.conftest import make_client, s3_endpoint

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

__all__ = ["s3_endpoint"]


@pytest.fixture
def place(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> CountedPlace:
    client: S3Client = make_client(s3_endpoint)
    client.create_bucket(Bucket="counted")
    monkeypatch.setattr(Place, "client", property(lambda self: client))
    return CountedPlace(s3_endpoint, "", "run")


def test_requests_and_bytes_of_a_block_are_counted(place: CountedPlace) -> None:
    store = ObjectStore(place.client, "counted")
    store.put_bytes("before", b"")
    with place.metered() as used:
        store.put_bytes("a/b", b"x" * 1000)
        assert store.get_tail("a/b", 300)[1] == 1000
        assert store.list_keys("a/") == ["a/b"]
        store.delete("a/b")
        with pytest.raises(ObjectMissing):
            store.get_bytes("a/b")
    assert (used.puts, used.gets, used.lists, used.deletes, used.requests) == (1, 2, 1, 1, 5)
    assert used.bytes_written == 1000
    # The listing and the answer that nothing is there are small documents.
    assert 300 < used.bytes_read < 3000


def test_what_was_used_adds_up() -> None:
    first, second = Used(gets=2, bytes_read=10), Used(gets=1, puts=3, cpu_seconds=0.5)
    both: Any = first + second
    assert both == Used(gets=3, puts=3, bytes_read=10, cpu_seconds=0.5)
    assert both - second == first
