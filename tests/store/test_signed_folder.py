"""Objects that others reach by signed addresses, against a real S3 server."""

from urllib.parse import urlsplit

import httpx
import pytest

from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.signed_folder import ExchangeFolder
from tests.store.conftest import make_client


@pytest.fixture
def folder(s3_endpoint: str, store: ObjectStore) -> ExchangeFolder:
    client = make_client(s3_endpoint, signature_version="s3v4")
    return ExchangeFolder(ObjectStore(client, store.bucket), "pods/one/")


def test_both_sides_take_what_the_other_left(folder: ExchangeFolder) -> None:
    folder.put("inputs.tar", b"in")
    assert httpx.get(folder.address("inputs.tar", "get", 60)).content == b"in"
    assert folder.take("rows", 100) is None
    assert httpx.put(folder.address("rows", "put", 60), content=b"one").is_success
    assert folder.take("rows", 100) == b"one"


def test_the_same_thing_is_taken_once_unless_it_is_too_large(folder: ExchangeFolder) -> None:
    folder.put("rows", b"one")
    assert (folder.take("rows", 100), folder.take("rows", 100)) == (b"one", None)
    folder.put("rows", b"x" * 101)
    assert (folder.take("rows", 100), folder.take("rows", 101)) == (None, b"x" * 101)


def test_an_address_names_one_object_its_time_and_no_credential(folder: ExchangeFolder) -> None:
    address = folder.address("rows", "put", 77)
    assert urlsplit(address).path.endswith("/pods/one/rows")
    assert "X-Amz-Expires=77" in address
    assert "X-Amz-Algorithm=AWS4-HMAC-SHA256" in address


def test_another_object_of_the_bucket_can_be_fetched_but_not_changed(
    folder: ExchangeFolder, store: ObjectStore
) -> None:
    store.put_bytes("corpora/s/0000.tar", b"all")
    address = folder.shared_address("corpora/s/0000.tar", 60)
    assert httpx.get(address).content == b"all"
    assert not httpx.put(address, content=b"other").is_success


def test_nothing_is_left_when_it_is_cleared(folder: ExchangeFolder, store: ObjectStore) -> None:
    store.put_bytes("pods/other/rows", b"stays")
    folder.put("rows", b"goes")
    folder.clear()
    assert store.list_keys("") == ["pods/other/rows"]
