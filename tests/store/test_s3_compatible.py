"""Stores that speak S3 with answers of their own, as small servers behind the real client."""

import json
import re
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

import pytest

from local.served import served
from skillopt_airflow.core.errors import Conflict, ObjectMissing, StoreError, StoreUnavailable
from skillopt_airflow.core.values.types import Edit, Patch
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.training.prepare.preflight import check_conditional_write
from tests.certificates import certificate
from tests.store.conftest import make_client

SETTING = {"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}
CHECKSUM_HEADERS = ("x-amz-sdk-checksum-algorithm", "x-amz-checksum-crc32", "x-amz-trailer")
PATCH = Patch(edits=(Edit(op="append", content="x"),))


@dataclass
class Answers:
    """What a store answers to uploads."""

    refusal: tuple[int, str, str]
    of_checksums: bool = False
    """Refuses only uploads with checksums."""
    times: int = 10**6
    """Refuses that many uploads."""
    stored: dict[str, bytes] = field(default_factory=dict)
    uploads: int = 0


class Store(ThreadingHTTPServer):
    def __init__(self, answers: Answers, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers = answers
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)


class Handler(BaseHTTPRequestHandler):
    server: Store
    protocol_version = "HTTP/1.1"

    def do_PUT(self) -> None:
        answers, body = self.server.answers, self._body()
        answers.uploads += 1
        exists = "if-none-match" in self.headers and self.path in answers.stored
        other = self.headers.get("if-match", '"tag"') != '"tag"'
        checked = any(name in self.headers for name in CHECKSUM_HEADERS)
        if answers.uploads <= answers.times and (checked or not answers.of_checksums):
            self._refuse(*answers.refusal)
        elif exists or other:
            self._refuse(412, "PreconditionFailed", "At least one of the preconditions did not hold")
        else:
            answers.stored[self.path] = body
            self._answer(200, b"")

    def do_GET(self) -> None:
        if self.path in self.server.answers.stored:
            self._answer(200, self.server.answers.stored[self.path])
        else:
            self._refuse(404, "NoSuchKey", "The specified key does not exist.")

    def do_DELETE(self) -> None:
        self.server.answers.stored.pop(self.path, None)
        self._answer(204, b"")

    def _body(self) -> bytes:
        if "transfer-encoding" not in self.headers:
            return self.rfile.read(int(self.headers.get("content-length", 0)))
        chunks = []
        while size := int(self.rfile.readline(), 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(chunks)

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._answer(
            status, f"<Error><Code>{code}</Code><Message>{message}</Message></Error>".encode() if code else b""
        )

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("ETag", '"tag"')
        self.send_header("Last-Modified", "Thu, 26 Nov 2026 12:00:00 GMT")
        if status != 204:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


class Behind(Protocol):
    def __call__(self, answers: Answers, **options: Any) -> ObjectStore: ...


@pytest.fixture
def behind() -> Iterator[Behind]:
    """Opens a bucket of a store with these answers."""
    with ExitStack() as opened:

        def open_store(answers: Answers, **options: Any) -> ObjectStore:
            server = opened.enter_context(served(Store(answers)))
            client = make_client(f"http://127.0.0.1:{server.server_port}", **options)
            opened.callback(client.close)
            return ObjectStore(client, "bucket", "connection skillopt_s3")

        yield open_store


REFUSED_CHECKSUMS = {
    "Ceph, MinIO, Huawei OBS": (400, "XAmzContentSHA256Mismatch", "The Content-SHA256 you specified did not match"),
    "Backblaze B2": (400, "InvalidArgument", "Unsupported header 'x-amz-sdk-checksum-algorithm' received"),
    "Cloudflare R2": (501, "NotImplemented", "Header 'x-amz-checksum-crc32' with value 'x' not implemented"),
    "Alibaba OSS": (400, "InvalidArgument", "aws-chunked encoding is not supported with the specified value"),
    "OVHcloud": (400, "InvalidRequest", "STREAMING-UNSIGNED-PAYLOAD-TRAILER is not supported"),
    "denied": (403, "AccessDenied", "x-amz-content-sha256 must be UNSIGNED-PAYLOAD or a valid sha256 value"),
}
PERHAPS_CHECKSUMS = {
    "Google Cloud Storage": (403, "SignatureDoesNotMatch", "Invalid argument."),
    "Qumulo": (400, "AuthorizationHeaderMalformed", "BadRequest(400)"),
    "Ceph": (411, "MissingContentLength", ""),
    "no sentence": (501, "NotImplemented", "A header you provided implies functionality that is not implemented"),
    "invalid": (400, "InvalidRequest", "Invalid request"),
    "no body": (400, "", ""),
    "no body, forbidden": (403, "", ""),
    "no body, not implemented": (501, "", ""),
}


@pytest.mark.parametrize("refusal", REFUSED_CHECKSUMS.values(), ids=REFUSED_CHECKSUMS)
def test_refused_checksums_are_explained_and_the_named_setting_helps(
    behind: Behind, refusal: tuple[int, str, str]
) -> None:
    store = behind(Answers(refusal, of_checksums=True))
    for use in (store.put_bytes, store.create, lambda key, _: check_conditional_write(store, key)):
        with pytest.raises(StoreError, match="checksums") as raised:
            use("key", b"")
        said = str(raised.value)
        assert "skillopt_s3" in said
        assert not re.search("credentials|rights|conditional writes", said)
        assert not isinstance(raised.value, StoreUnavailable | Conflict | ObjectMissing)
    assert f'"config_kwargs": {json.dumps(SETTING)}' in said
    behind(Answers(refusal, of_checksums=True), **SETTING).put_bytes("key", b"1")


@pytest.mark.parametrize("refusal", PERHAPS_CHECKSUMS.values(), ids=PERHAPS_CHECKSUMS)
def test_a_refusal_that_checksums_may_have_caused_names_the_setting(
    behind: Behind, refusal: tuple[int, str, str]
) -> None:
    with pytest.raises(StoreError, match=r"reject boto3's checksums\. Set"):
        behind(Answers(refusal, of_checksums=True)).create("key", b"1")
    with pytest.raises(StoreError) as raised:
        behind(Answers(refusal), **SETTING).create("key", b"1")
    assert "checksum" not in str(raised.value)


@pytest.mark.parametrize("code", ["AccessDenied", "ExpiredToken"])
def test_refused_credentials_are_not_called_checksums(behind: Behind, code: str) -> None:
    with pytest.raises(StoreError, match="credentials of connection skillopt_s3") as raised:
        behind(Answers((403, code, "Access denied"))).put_bytes("key", b"1")
    assert "checksum" not in str(raised.value)


def test_a_store_without_conditional_writes_is_named(behind: Behind) -> None:
    refusal = (501, "NotImplemented", "A header you provided implies functionality that is not implemented")
    with pytest.raises(StoreError, match="conditional writes"):
        check_conditional_write(behind(Answers(refusal), **SETTING), "key")


def test_refused_trailers_of_an_encrypted_connection_are_explained(tmp_path: Path) -> None:
    path = certificate(tmp_path, "localhost")
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(path)
    with served(Store(Answers(REFUSED_CHECKSUMS["OVHcloud"], of_checksums=True), tls)) as server:
        client = make_client(f"https://localhost:{server.server_port}", verify=str(path))
        with pytest.raises(StoreError, match="boto3's checksums"):
            ObjectStore(client, "bucket").put_bytes("key", b"1")
        client.close()


CONFLICTS = [(409, "ConditionalRequestConflict", "Try again"), (409, "OperationAborted", "Try again"), (409, "", "")]


@pytest.mark.nightly
@pytest.mark.parametrize("refusal", CONFLICTS)
def test_an_upload_that_is_asked_for_again_is_sent_again_until_the_store_is_unavailable(
    behind: Behind, refusal: tuple[int, str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = Answers(refusal, times=2)
    store = behind(answers)
    assert store.first_model("first", PATCH) == PATCH
    assert answers.uploads == 3
    answers.uploads = 0
    store.replace("first", b"2", '"tag"')
    assert store.get_bytes("first") == b"2"
    answers.uploads = 0
    with pytest.raises(Conflict):
        store.create("first", b"3")
    with pytest.raises(Conflict):
        store.replace("first", b"3", '"another"')
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda seconds: None)
    answers.times = 10**6
    for use in (lambda: store.first_model("other", PATCH), lambda: store.replace("other", b"1", '"tag"')):
        answers.uploads = 0
        with pytest.raises(StoreUnavailable, match="s3://bucket/other"):
            use()
        assert answers.uploads == 6


def test_a_read_with_a_wrong_checksum_names_the_setting(behind: Behind, monkeypatch: pytest.MonkeyPatch) -> None:
    store = behind(Answers((500, "", ""), times=0))
    store.put_bytes("key", b"1")

    def end_headers(handler: BaseHTTPRequestHandler) -> None:
        handler.send_header("x-amz-checksum-crc32", "AAAAAA==")
        BaseHTTPRequestHandler.end_headers(handler)

    monkeypatch.setattr(Handler, "end_headers", end_headers)
    with pytest.raises(StoreUnavailable, match='Set "config_kwargs"'):
        store.get_bytes("key")
