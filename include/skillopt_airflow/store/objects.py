"""Objects of one bucket, with errors that give advice."""

import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple, cast

from botocore.exceptions import BotoCoreError, ClientError, NoCredentialsError, PartialCredentialsError
from pydantic import JsonValue
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential
from urllib3.exceptions import HTTPError

from skillopt_airflow.core.errors import Conflict, ObjectMissing, StoreError, StoreUnavailable
from skillopt_airflow.core.values.documents import Document, Kind, read_document

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef

_NO_PERMISSION = {"AccessDenied", "InvalidAccessKeyId", "ExpiredToken", "InvalidToken"}
_DENIED = _NO_PERMISSION | {"403", "SignatureDoesNotMatch"}
_MISSING = {"NoSuchKey", "404"}
_LOST_RACE = {"PreconditionFailed", "412"}
_CHECKSUMS = re.compile(r"checksum|content-?sha-?256|aws-chunked|trailer|streaming-|crc(32|64)", re.IGNORECASE)
"""Words in errors of S3-compatible stores that reject the checksums which boto3 adds since 1.36."""
_UNCHECKED = '{"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}'

STORAGE_CONNECTION = "the Airflow connection in storage.conn_id"


class StoredObject(NamedTuple):
    """A body and its ETag, which `ObjectStore.replace` takes."""

    body: bytes
    etag: str


class ObjectStore:
    """One bucket, accessed with the caller's boto3 client; thread-safe.

    All methods raise StoreError if the bucket is missing, the endpoint doesn't respond or access is denied. Methods
    that read an object raise ObjectMissing if it doesn't exist. Errors name the client's `connection`.
    """

    def __init__(self, client: "S3Client", bucket: str, connection: str = STORAGE_CONNECTION) -> None:
        self.bucket = bucket
        self._client = client
        self._connection = connection

    def address(self, key: str) -> str:
        """Return `s3://<bucket>/<key>`."""
        return f"s3://{self.bucket}/{key}"

    def get(self, key: str) -> StoredObject:
        with self._open(key) as response:
            return StoredObject(response["Body"].read(), response["ETag"])

    def get_bytes(self, key: str) -> bytes:
        return self.get(key).body

    def get_start(self, key: str, limit: int) -> bytes:
        """Return the first bytes of the body, at most `limit`."""
        with self._open(key) as response:
            return response["Body"].read(limit)

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """Return the bytes of the body from `start` to before `stop`."""
        with self._open(key, Range=f"bytes={start}-{stop - 1}") as response:
            return response["Body"].read()

    def get_tail(self, key: str, length: int) -> tuple[bytes, int]:
        """Return the last bytes of a body that isn't empty, at most `length`, and the body's full length."""
        with self._open(key, Range=f"bytes=-{length}") as response:
            return response["Body"].read(), int(response["ContentRange"].rpartition("/")[2])

    def get_text(self, key: str) -> str:
        try:
            return self.get_bytes(key).decode()
        except UnicodeDecodeError as error:
            raise StoreError(f"{self.address(key)} is not UTF-8 text: {error}") from error

    def get_model(self, key: str, kind: type[Kind]) -> Kind:
        return self.get_tagged_model(key, kind)[0]

    def find_model(self, key: str, kind: type[Kind]) -> Kind | None:
        try:
            return self.get_model(key, kind)
        except ObjectMissing:
            return None

    def get_tagged_model(self, key: str, kind: type[Kind]) -> tuple[Kind, str]:
        """Return a document and its ETag, for `replace`."""
        body, etag = self.get(key)
        return read_document(kind, body, self.address(key)), etag

    def put_bytes(self, key: str, body: bytes | IO[bytes]) -> None:
        """Write bytes, or the rest of a file, over an existing object."""
        with self._store_errors(key):
            self._client.put_object(Bucket=self.bucket, Key=key, Body=body)

    def put_text(self, key: str, text: str) -> None:
        self.put_bytes(key, text.encode())

    def put_json(self, key: str, value: JsonValue) -> None:
        """Write JSON; equal values give equal bytes."""
        self.put_bytes(key, json_bytes(value))

    def put_model(self, key: str, document: Document) -> None:
        """Write a document as JSON; equal documents give equal bytes."""
        self.put_bytes(key, model_bytes(document))

    def create(self, key: str, body: bytes) -> None:
        """Write an object that doesn't exist yet.

        Raises:
            Conflict: it exists, or another writer was first.
        """
        self._put_if(key, body, IfNoneMatch="*")

    def create_model(self, key: str, document: Document) -> None:
        self.create(key, model_bytes(document))

    def first_model(self, key: str, document: Kind) -> Kind:
        """Write a document unless one exists; return the stored one."""
        try:
            self.create_model(key, document)
        except Conflict:
            return self.get_model(key, type(document))
        return document

    def replace(self, key: str, body: bytes, etag: str) -> None:
        """Write an object if it still has this ETag.

        Raises:
            Conflict: another writer changed it.
            ObjectMissing: it doesn't exist any more.
        """
        self._put_if(key, body, IfMatch=etag)

    def _put_if(self, key: str, body: bytes, **condition: str) -> None:
        """Write on a condition; repeat after a 409, which means that the store made no decision."""
        busy, put = retry_if_exception(lambda error: _status(error) == 409), cast("Any", self._client.put_object)
        pause, stop = wait_random_exponential(0.1, max=2), stop_after_attempt(6)
        with self._store_errors(key):
            Retrying(retry=busy, wait=pause, stop=stop, reraise=True)(
                put, Bucket=self.bucket, Key=key, Body=body, **condition
            )

    def delete(self, key: str) -> None:
        with self._store_errors(key):
            self._client.delete_object(Bucket=self.bucket, Key=key)

    def get_if_changed(self, key: str, etag: str, limit: int) -> StoredObject | None:
        """Return an object that has another ETag and at most `limit` bytes, or None."""
        try:
            with self._open(key) as response:
                if response["ETag"] == etag or response["ContentLength"] > limit:
                    return None
                return StoredObject(response["Body"].read(limit), response["ETag"])
        except ObjectMissing:
            return None

    def signed_url(self, key: str, method: Literal["get", "put"], seconds: int) -> str:
        """Return a URL that lets its holder read or write this object for `seconds`."""
        with self._store_errors(key):
            return self._client.generate_presigned_url(
                f"{method}_object", Params={"Bucket": self.bucket, "Key": key}, ExpiresIn=seconds
            )

    def exists(self, key: str) -> bool:
        # A HEAD request doesn't distinguish a missing object from a missing bucket.
        with self._store_errors(key):
            response = self._client.list_objects_v2(Bucket=self.bucket, Prefix=key, MaxKeys=1)
        return any(entry["Key"] == key for entry in response.get("Contents", ()))

    def list_keys(self, prefix: str) -> list[str]:
        """Return all keys below the prefix, sorted."""
        return sorted(key for key, _ in self._list(prefix))

    def list_dated(self, prefix: str) -> dict[str, datetime]:
        return dict(self._list(prefix))

    def list_folders(self, prefix: str) -> list[str]:
        """Return the names of the folders directly below a prefix that ends with a slash, sorted."""
        with self._store_errors(prefix):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=prefix, Delimiter="/"
            )
            folders = [one["Prefix"] for page in pages for one in page.get("CommonPrefixes", ())]
        return sorted(folder.removeprefix(prefix).removesuffix("/") for folder in folders)

    def list_older(self, prefix: str, than: datetime) -> list[str]:
        return sorted(key for key, written in self._list(prefix) if written < than)

    def _list(self, prefix: str) -> Iterator[tuple[str, datetime]]:
        with self._store_errors(prefix):
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
            for page in pages:
                yield from ((entry["Key"], entry["LastModified"]) for entry in page.get("Contents", ()))

    @contextmanager
    def _open(self, key: str, **options: Any) -> "Iterator[GetObjectOutputTypeDef]":
        with self._store_errors(key):
            response = self._client.get_object(Bucket=self.bucket, Key=key, **options)
            with closing(response["Body"]):
                yield response

    @contextmanager
    def _store_errors(self, key: str) -> Iterator[None]:
        endpoint = self._client.meta.endpoint_url
        try:
            yield
        except ClientError as error:
            raise self._refusal(key, error) from error
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise StoreError(
                f"no credentials for {self.address(key)} at {endpoint}. Add them to {self._connection}."
            ) from error
        except (BotoCoreError, HTTPError) as error:
            problem = f"the object store at {endpoint} did not respond for {self.address(key)} ({error})"
            advice = f"Check that it runs, and the endpoint_url of {self._connection}."
            if _CHECKSUMS.search(str(error)):
                advice = self._checksum_setting() or advice
            raise StoreUnavailable(f"{problem}. {advice}") from error

    def _refusal(self, key: str, error: ClientError) -> StoreError:
        address, where = self.address(key), f"{self.address(key)} at {self._client.meta.endpoint_url}"
        code, status = str(error.response.get("Error", {}).get("Code", "")), _status(error)
        setting = self._checksum_setting()
        if code == "NoSuchBucket":
            return StoreError(
                f"bucket {self.bucket} does not exist (for {where}). Create it, or set storage.bucket or "
                "storage.artifact_bucket to an existing one."
            )
        if code in _MISSING:
            return ObjectMissing(f"nothing is stored as {where}")
        if code in _LOST_RACE or code.endswith("AlreadyExists"):
            return Conflict(f"another writer was first at {address}. Read the object again and decide again.")
        if setting and (status < 500 or status == 501) and _CHECKSUMS.search(str(error)):
            return StoreError(f"the object store refused {where} because of boto3's checksums ({error}). {setting}")
        may_be_checksums = (
            error.operation_name == "PutObject" and status in (400, 403, 411, 501) and code not in _NO_PERMISSION
        )
        # Google's store, for example, refuses such an upload with SignatureDoesNotMatch: "Invalid argument."
        hint = f" The store may also reject boto3's checksums. {setting}" if may_be_checksums and setting else ""
        if code in _DENIED:
            return StoreError(
                f"access to {where} was denied ({code}). Check the credentials of {self._connection}, "
                f"and their permissions on the bucket.{hint}"
            )
        if status == 501 or code == "NotImplemented":
            return StoreError(
                f"the object store does not support a request for {where} ({error}). Use one with conditional "
                f"writes.{hint}"
            )
        if status >= 500 or status in (409, 429) or code == "RequestTimeout":
            return StoreUnavailable(f"the object store cannot serve {where} now: {error}")
        return StoreError(f"the object store refused {where} ({error}).{hint}")

    def _checksum_setting(self) -> str:
        """Return the advice to disable checksums; empty if none are sent, and for Amazon S3, which supports them."""
        config: Any = self._client.meta.config
        settings = (config.request_checksum_calculation, config.response_checksum_validation)
        if "when_supported" not in settings or ".amazonaws.com" in self._client.meta.endpoint_url:
            return ""
        return f'Set "config_kwargs": {_UNCHECKED} in the extra of {self._connection}.'


def _status(error: BaseException) -> int:
    return int(error.response["ResponseMetadata"]["HTTPStatusCode"]) if isinstance(error, ClientError) else 0


def json_bytes(value: Any) -> bytes:
    """Return readable and reproducible UTF-8 JSON: sorted keys, indented, a newline at the end."""
    return (json.dumps(value, sort_keys=True, ensure_ascii=False, indent=2, allow_nan=False) + "\n").encode()


def model_bytes(document: Document) -> bytes:
    return json_bytes(document.to_json())


class ExchangeFolder:
    """The store's folder of a sandbox, which accesses it by signed URLs."""

    def __init__(self, store: ObjectStore, folder: str) -> None:
        self._store = store
        self._folder = folder
        self._seen: dict[str, str] = {}

    def put(self, name: str, body: bytes) -> None:
        self._store.put_bytes(f"{self._folder}{name}", body)

    def signed_url(self, name: str, method: Literal["get", "put"], seconds: int) -> str:
        return self._store.signed_url(f"{self._folder}{name}", method, seconds)

    def shared_url(self, key: str, seconds: int) -> str:
        return self._store.signed_url(key, "get", seconds)

    def take(self, name: str, limit: int) -> bytes | None:
        changed = self._store.get_if_changed(f"{self._folder}{name}", self._seen.get(name, ""), limit)
        if changed is None:
            return None
        self._seen[name] = changed.etag
        return changed.body

    def clear(self) -> None:
        for key in self._store.list_keys(self._folder):
            self._store.delete(key)
