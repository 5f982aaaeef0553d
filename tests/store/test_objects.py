import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httpx
import pytest
from botocore.stub import Stubber

from skillopt_airflow.core.errors import Conflict, ObjectMissing, StoreError, StoreUnavailable
from skillopt_airflow.core.values.types import Edit, Patch
from skillopt_airflow.store.objects import ExchangeFolder, ObjectStore
from tests.store.conftest import make_client

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

KEY = "skills/searchqa/openai-chat%3Aorg%2Fmodel/a b+ü.md"


def test_text_comes_back_byte_for_byte(store: ObjectStore) -> None:
    text = "# Skill\r\n\n\u2028é\x00 end"
    store.put_text(KEY, text)
    assert store.get_text(KEY) == text
    assert store.list_keys("skills/") == [KEY]


def test_json_and_models_come_back_and_equal_values_are_equal_bytes(store: ObjectStore) -> None:
    patch = Patch(edits=(Edit(op="append", content="é"),))
    store.put_model("patch.json", patch)
    assert store.get_model("patch.json", Patch) == patch
    store.put_json("one.json", {"a": 1, "b": [None, 0.5]})
    store.put_json("other.json", {"b": [None, 0.5], "a": 1})
    assert store.get_bytes("one.json") == store.get_bytes("other.json")
    assert store.get_bytes("one.json").endswith(b"}\n")
    assert json.loads(store.get_text("one.json")) == {"a": 1, "b": [None, 0.5]}


def test_a_key_is_listed_with_the_time_of_its_last_write(store: ObjectStore) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    store.put_text(KEY, "one")
    store.put_text(KEY, "two")
    assert before <= store.list_dated(KEY)[KEY] <= datetime.now(UTC)


def test_an_object_is_found_by_its_whole_key(store: ObjectStore) -> None:
    store.put_bytes("a/b", b"")
    store.put_bytes("a/bc", b"123")
    assert [store.exists(key) for key in ("a/b", "a/bc", "a/", "a")] == [True, True, False, False]


@pytest.mark.nightly
def test_listing_goes_over_pages(store: ObjectStore) -> None:
    keys = [f"many/{number:04d}" for number in range(1050)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.put_bytes(key, b""), keys))
    assert store.list_keys("many/") == keys


def test_folders_are_listed_without_what_is_in_them(store: ObjectStore) -> None:
    for key in ("skills/a/x", "skills/b%2Fc/y/z", "skills/b%2Fc/v", "skills/file", "skills-2/d/x"):
        store.put_bytes(key, b"")
    assert store.list_folders("skills/") == ["a", "b%2Fc"]
    assert store.list_folders("none/") == []


def test_create_lets_one_writer_in(store: ObjectStore) -> None:
    def write(number: int) -> bool:
        try:
            store.create("one", str(number).encode())
        except Conflict:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(write, range(8)))
    assert won.count(True) == 1
    assert store.get_text("one") == str(won.index(True))


def test_replace_wants_the_version_that_was_read(store: ObjectStore) -> None:
    store.put_text("alias", "1")
    first = store.get("alias")
    store.replace("alias", b"2", first.etag)
    with pytest.raises(Conflict, match="another writer was first at s3://"):
        store.replace("alias", b"3", first.etag)
    assert store.get_text("alias") == "2"
    with pytest.raises(ObjectMissing):
        store.replace("gone", b"3", first.etag)


def test_what_is_missing_or_of_another_kind_is_named(store: ObjectStore) -> None:
    with pytest.raises(ObjectMissing, match=f"s3://{store.bucket}/no/such"):
        store.get_bytes("no/such")
    for body in ("{", '{"edits": 1}'):
        store.put_text("bad.json", body)
        with pytest.raises(StoreError, match=r"bad\.json .* Patch"):
            store.get_model("bad.json", Patch)
    store.put_bytes("bad", b"\xff")
    with pytest.raises(StoreError, match="bad is not UTF-8"):
        store.get_text("bad")


def test_a_missing_bucket_is_named(s3_client: "S3Client") -> None:
    store = ObjectStore(s3_client, "no-such-bucket")
    for use in (store.get_bytes, store.exists, store.list_keys, lambda key: store.put_text(key, "")):
        with pytest.raises(StoreError, match="bucket no-such-bucket"):
            use("key")


def test_an_endpoint_that_does_not_answer_is_named(unreachable_client: "S3Client") -> None:
    with pytest.raises(StoreUnavailable, match=r"http://127.0.0.1:\d+ .*endpoint_url"):
        ObjectStore(unreachable_client, "bucket").get_bytes("key")


@pytest.mark.parametrize(
    ("code", "status", "passes"),
    [
        ("InternalError", 500, True),
        ("TooManyRequests", 429, True),
        ("OperationAborted", 409, True),
        ("RequestTimeout", 400, True),
        ("InvalidRequest", 400, False),
        ("AccessDenied", 403, False),
    ],
)
def test_what_may_be_asked_again_is_told_apart(
    unreachable_client: "S3Client", code: str, status: int, passes: bool
) -> None:
    with Stubber(unreachable_client) as stub:
        stub.add_client_error("get_object", code, http_status_code=status)
        with pytest.raises(StoreError, match=f"s3://bucket/key.*{'' if passes else code}") as raised:
            ObjectStore(unreachable_client, "bucket").get_bytes("key")
    assert isinstance(raised.value, StoreUnavailable) == passes


@pytest.mark.parametrize("cut", [0, 5])
def test_an_answer_that_breaks_off_is_told_as_no_answer(cut: int) -> None:
    def serve() -> None:
        connection, _ = server.accept()
        with connection:
            connection.recv(65536)
            lines = [
                "HTTP/1.1 200 OK",
                "ETag: x",
                "Last-Modified: Thu, 26 Nov 2026 12:00:00 GMT",
                "Content-Length: 100",
            ]
            connection.sendall("\r\n".join([*lines, "", "x" * cut]).encode())

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        client = make_client(f"http://127.0.0.1:{server.getsockname()[1]}")
        with pytest.raises(StoreUnavailable, match="did not respond for s3://bucket/key"):
            ObjectStore(client, "bucket").get_bytes("key")
        client.close()
        thread.join()


@pytest.fixture
def folder(s3_endpoint: str, store: ObjectStore) -> ExchangeFolder:
    client = make_client(s3_endpoint, signature_version="s3v4")
    return ExchangeFolder(ObjectStore(client, store.bucket), "pods/one/")


def test_both_sides_take_what_the_other_left(folder: ExchangeFolder) -> None:
    folder.put("inputs.tar", b"in")
    assert httpx.get(folder.signed_url("inputs.tar", "get", 60)).content == b"in"
    assert folder.take("rows", 100) is None
    assert httpx.put(folder.signed_url("rows", "put", 60), content=b"one").is_success
    assert folder.take("rows", 100) == b"one"


def test_the_same_thing_is_taken_once_unless_it_is_too_large(folder: ExchangeFolder) -> None:
    folder.put("rows", b"one")
    assert (folder.take("rows", 100), folder.take("rows", 100)) == (b"one", None)
    folder.put("rows", b"x" * 101)
    assert (folder.take("rows", 100), folder.take("rows", 101)) == (None, b"x" * 101)


def test_an_address_names_one_object_its_time_and_no_credential(folder: ExchangeFolder) -> None:
    address = folder.signed_url("rows", "put", 77)
    assert urlsplit(address).path.endswith("/pods/one/rows")
    assert "X-Amz-Expires=77" in address
    assert "X-Amz-Algorithm=AWS4-HMAC-SHA256" in address


def test_another_object_of_the_bucket_can_be_fetched_but_not_changed(
    folder: ExchangeFolder, store: ObjectStore
) -> None:
    store.put_bytes("corpora/s/0000.tar", b"all")
    address = folder.shared_url("corpora/s/0000.tar", 60)
    assert httpx.get(address).content == b"all"
    assert not httpx.put(address, content=b"other").is_success


def test_nothing_is_left_when_it_is_cleared(folder: ExchangeFolder, store: ObjectStore) -> None:
    store.put_bytes("pods/other/rows", b"stays")
    folder.put("rows", b"goes")
    folder.clear()
    assert store.list_keys("") == ["pods/other/rows"]
