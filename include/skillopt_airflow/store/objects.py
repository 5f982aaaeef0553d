"""Objects of one bucket, with errors that say what to do."""

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

from skillopt_airflow.core.errors import Conflict, DataError, ObjectMissing, StoreError, StoreUnavailable
from skillopt_airflow.core.values.documents import Document, Kind, read_document

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from mypy_boto3_s3.type_defs import GetObjectOutputTypeDef, ObjectTypeDef

_NO_RIGHT = {"AccessDenied", "InvalidAccessKeyId", "ExpiredToken", "InvalidToken"}
_DENIED = _NO_RIGHT | {"403", "SignatureDoesNotMatch"}
_MISSING = {"NoSuchKey", "404"}
_LOST_RACE = {"PreconditionFailed", "412"}
_CHECKSUMS = re.compile(r"checksum|content-?sha-?256|aws-chunked|trailer|streaming-|crc(32|64)", re.IGNORECASE)
"""Words of S3-compatible stores that refuse the checksums which boto3 adds since 1.36."""
_UNCHECKED = '{"request_checksum_calculation": "when_required", "response_checksum_validation": "when_required"}'

STORAGE_CONNECTION = "the Airflow connection that storage.conn_id names"


class StoredObject(NamedTuple):
    """A body and the tag of its version, which `ObjectStore.replace` takes."""

    body: bytes
    etag: str


class ObjectStore:
    """One bucket behind a boto3 client that the caller made; safe to share between threads.

    Every method raises StoreError when the bucket is missing, the endpoint does not answer or
    access is denied.

    Args:
        connection: what an error calls the connection that the client was made from.
    """

    def __init__(self, client: "S3Client", bucket: str, connection: str = STORAGE_CONNECTION) -> None:
        self.bucket = bucket
        self._client = client
        self._connection = connection

    def address(self, key: str) -> str:
        """Return `s3://<bucket>/<key>`."""
        return f"s3://{self.bucket}/{key}"

    def get(self, key: str) -> StoredObject:
        """Return body and tag.

        Raises:
            ObjectMissing: nothing is stored under the key.
        """
        with self._opened(key) as answer:
            return StoredObject(answer["Body"].read(), answer["ETag"])

    def get_bytes(self, key: str) -> bytes:
        return self.get(key).body

    def get_start(self, key: str, most: int) -> bytes:
        """Return at most so many bytes of the body; raises ObjectMissing."""
        with self._opened(key) as answer:
            return answer["Body"].read(most)

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        """Return the bytes of the body from `start` until before `stop`; raises ObjectMissing."""
        with self._opened(key, Range=f"bytes={start}-{stop - 1}") as answer:
            return answer["Body"].read()

    def get_tail(self, key: str, length: int) -> tuple[bytes, int]:
        """Return the last bytes of a body that is not empty, at most so many, and its length; raises ObjectMissing."""
        with self._opened(key, Range=f"bytes=-{length}") as answer:
            return answer["Body"].read(), int(answer["ContentRange"].rpartition("/")[2])

    def size(self, key: str) -> int:
        """Return the length of the body in bytes; raises ObjectMissing."""
        for found in self._found(key):
            return found["Size"]
        raise ObjectMissing(f"nothing is stored as {self.address(key)}")

    def get_text(self, key: str) -> str:
        """Return the body as UTF-8; raises ObjectMissing, and StoreError if it is not UTF-8."""
        try:
            return self.get_bytes(key).decode()
        except UnicodeDecodeError as error:
            raise StoreError(f"{self.address(key)} is not UTF-8 text: {error}") from error

    def get_model(self, key: str, kind: type[Kind]) -> Kind:
        """Return a document; raises ObjectMissing, and StoreError if `read_document` does."""
        return self.get_tagged_model(key, kind)[0]

    def find_model(self, key: str, kind: type[Kind]) -> Kind | None:
        """Return a document, None if nothing is stored under the key; raises StoreError if `read_document` does."""
        try:
            return self.get_model(key, kind)
        except ObjectMissing:
            return None

    def get_tagged_model(self, key: str, kind: type[Kind]) -> tuple[Kind, str]:
        """Return a document and its tag for `replace`; raises what `get_model` raises."""
        body, etag = self.get(key)
        return read_document(kind, body, self.address(key)), etag

    def put_bytes(self, key: str, body: bytes | IO[bytes]) -> None:
        """Write bytes, or what a file holds from its place on, over whatever was there."""
        with self._explained(key):
            self._client.put_object(Bucket=self.bucket, Key=key, Body=body)

    def put_text(self, key: str, text: str) -> None:
        """Write UTF-8, byte for byte."""
        self.put_bytes(key, text.encode())

    def put_json(self, key: str, value: JsonValue) -> None:
        """Write JSON; equal values give equal bytes."""
        self.put_bytes(key, json_bytes(value))

    def put_model(self, key: str, document: Document) -> None:
        """Write a document as JSON; equal documents give equal bytes."""
        self.put_bytes(key, model_bytes(document))

    def create(self, key: str, body: bytes) -> None:
        """Write only if nothing is there.

        Raises:
            Conflict: something is, or another writer was first.
        """
        self._put_if(key, body, IfNoneMatch="*")

    def create_model(self, key: str, document: Document) -> None:
        """Write a document only if nothing is there; raise Conflict as `create` does."""
        self.create(key, model_bytes(document))

    def first_model(self, key: str, document: Kind) -> Kind:
        """Write a document unless one is there; return the stored one."""
        try:
            self.create_model(key, document)
        except Conflict:
            return self.get_model(key, type(document))
        return document

    def replace(self, key: str, body: bytes, etag: str) -> None:
        """Write only if the object is still the one that was read with this tag.

        Raises:
            Conflict: another writer changed it since.
            ObjectMissing: it is gone.
        """
        self._put_if(key, body, IfMatch=etag)

    def _put_if(self, key: str, body: bytes, **condition: str) -> None:
        """Write on a condition; again after a 409, with which nothing is decided or stored."""
        busy, put = retry_if_exception(lambda error: _status(error) == 409), cast("Any", self._client.put_object)
        pause, stop = wait_random_exponential(0.1, max=2), stop_after_attempt(6)
        with self._explained(key):
            Retrying(retry=busy, wait=pause, stop=stop, reraise=True)(
                put, Bucket=self.bucket, Key=key, Body=body, **condition
            )

    def delete(self, key: str) -> None:
        with self._explained(key):
            self._client.delete_object(Bucket=self.bucket, Key=key)

    def get_if_other(self, key: str, etag: str, most: int) -> StoredObject | None:
        """Return body and tag of an object with another tag than this and at most so many bytes, if there is one."""
        try:
            with self._opened(key) as answer:
                if answer["ETag"] == etag or answer["ContentLength"] > most:
                    return None
                return StoredObject(answer["Body"].read(most), answer["ETag"])
        except ObjectMissing:
            return None

    def signed_address(self, key: str, method: Literal["get", "put"], seconds: int) -> str:
        """Return an address that lets its holder read or write this one object for so many seconds."""
        with self._explained(key):
            return self._client.generate_presigned_url(
                f"{method}_object", Params={"Bucket": self.bucket, "Key": key}, ExpiresIn=seconds
            )

    def exists(self, key: str) -> bool:
        return bool(self._found(key))

    def list_keys(self, prefix: str) -> list[str]:
        """Return all keys below the prefix, sorted."""
        return sorted(key for key, _ in self._listed(prefix))

    def list_dated(self, prefix: str) -> dict[str, datetime]:
        return dict(self._listed(prefix))

    def list_folders(self, prefix: str) -> list[str]:
        """Return the names right below a prefix that ends with a slash and that more keys begin with, sorted."""
        with self._explained(prefix):
            pages = self._client.get_paginator("list_objects_v2").paginate(
                Bucket=self.bucket, Prefix=prefix, Delimiter="/"
            )
            found = [one["Prefix"] for page in pages for one in page.get("CommonPrefixes", ())]
        return sorted(name.removeprefix(prefix).removesuffix("/") for name in found)

    def list_older(self, prefix: str, than: datetime) -> list[str]:
        return sorted(key for key, written in self._listed(prefix) if written < than)

    def _listed(self, prefix: str) -> Iterator[tuple[str, datetime]]:
        with self._explained(prefix):
            pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.bucket, Prefix=prefix)
            for page in pages:
                yield from ((found["Key"], found["LastModified"]) for found in page.get("Contents", ()))

    def _found(self, key: str) -> "list[ObjectTypeDef]":
        """List the object, because the answer to HEAD does not tell a missing one from a missing bucket."""
        with self._explained(key):
            answer = self._client.list_objects_v2(Bucket=self.bucket, Prefix=key, MaxKeys=1)
        return [found for found in answer.get("Contents", ()) if found["Key"] == key]

    @contextmanager
    def _opened(self, key: str, **wanted: Any) -> "Iterator[GetObjectOutputTypeDef]":
        with self._explained(key):
            answer = self._client.get_object(Bucket=self.bucket, Key=key, **wanted)
            with closing(answer["Body"]):
                yield answer

    @contextmanager
    def _explained(self, key: str) -> Iterator[None]:
        endpoint = self._client.meta.endpoint_url
        try:
            yield
        except ClientError as error:
            raise self._refusal(key, error) from error
        except (NoCredentialsError, PartialCredentialsError) as error:
            raise StoreError(
                f"no credentials for {self.address(key)} at {endpoint}: put them into {self._connection}"
            ) from error
        except (BotoCoreError, HTTPError) as error:
            said = f"the object store at {endpoint} did not answer for {self.address(key)} ({error})"
            advice = f"check that it runs, and the endpoint_url of {self._connection}"
            if _CHECKSUMS.search(str(error)):
                advice = self._checksum_setting() or advice
            raise StoreUnavailable(f"{said}: {advice}") from error

    def _refusal(self, key: str, error: ClientError) -> StoreError:
        address, where = self.address(key), f"{self.address(key)} at {self._client.meta.endpoint_url}"
        code, status = str(error.response.get("Error", {}).get("Code", "")), _status(error)
        setting = self._checksum_setting()
        if code == "NoSuchBucket":
            return StoreError(
                f"bucket {self.bucket} does not exist (wanted {where}): create it, or name one that exists in "
                "storage.bucket or storage.artifact_bucket"
            )
        if code in _MISSING:
            return ObjectMissing(f"nothing is stored as {where}")
        if code in _LOST_RACE or code.endswith("AlreadyExists"):
            return Conflict(f"another writer was first at {address}: read it again and decide anew")
        if setting and (status < 500 or status == 501) and _CHECKSUMS.search(str(error)):
            return StoreError(f"the object store refused {where} for boto3's checksums ({error}): {setting}")
        perhaps = error.operation_name == "PutObject" and status in (400, 403, 411, 501) and code not in _NO_RIGHT
        # Google's store, for example, answers such an upload with SignatureDoesNotMatch: "Invalid argument."
        hint = f"; if it refuses boto3's checksums, {setting}" if perhaps and setting else ""
        if code in _DENIED:
            return StoreError(
                f"access to {where} was denied ({code}): check the credentials of {self._connection}, "
                f"and their rights on the bucket{hint}"
            )
        if status == 501 or code == "NotImplemented":
            return StoreError(
                f"the object store does not do what {where} asks for ({error}): use one with conditional writes{hint}"
            )
        if status >= 500 or status in (409, 429) or code == "RequestTimeout":
            return StoreUnavailable(f"the object store cannot serve {where} now: {error}")
        return StoreError(f"the object store refused {where}: {error}{hint}")

    def _checksum_setting(self) -> str:
        """Return how to leave out checksums; empty if none are sent, and for Amazon's own store, which takes them."""
        config: Any = self._client.meta.config
        asked = (config.request_checksum_calculation, config.response_checksum_validation)
        if "when_supported" not in asked or ".amazonaws.com" in self._client.meta.endpoint_url:
            return ""
        return f'set "config_kwargs": {_UNCHECKED} in the extra of {self._connection}'


def _status(error: BaseException) -> int:
    return int(error.response["ResponseMetadata"]["HTTPStatusCode"]) if isinstance(error, ClientError) else 0


@contextmanager
def data_errors(address: str, hint: str) -> Iterator[None]:
    """Raise DataError for a StoreError of the block, with an address, if any, or with a hint if an object is missing.

    That the store does not answer now is not the data's fault, and stays StoreUnavailable.
    """
    try:
        yield
    except StoreUnavailable:
        raise
    except ObjectMissing as error:
        raise DataError(f"{error}; {hint}") from error
    except StoreError as error:
        raise DataError(f"{address}: {error}" if address else str(error)) from error


def json_bytes(value: Any) -> bytes:
    """Return UTF-8 JSON for people and for comparison: sorted keys, indented, a newline at the end."""
    return (json.dumps(value, sort_keys=True, ensure_ascii=False, indent=2, allow_nan=False) + "\n").encode()


def model_bytes(document: Document) -> bytes:
    return json_bytes(document.to_json())


class ExchangeFolder:
    """Objects that others reach by signed addresses; each is for one object, one method and a limited time.

    Every method raises StoreError as `ObjectStore` does.
    """

    def __init__(self, store: ObjectStore, folder: str) -> None:
        self._store = store
        self._folder = folder
        self._seen: dict[str, str] = {}

    def put(self, name: str, body: bytes) -> None:
        self._store.put_bytes(f"{self._folder}{name}", body)

    def signed_url(self, name: str, method: Literal["get", "put"], seconds: int) -> str:
        return self._store.signed_address(f"{self._folder}{name}", method, seconds)

    def shared_url(self, key: str, seconds: int) -> str:
        return self._store.signed_address(key, "get", seconds)

    def take(self, name: str, most: int) -> bytes | None:
        """Return what the other side left since the last time, if it has at most `most` bytes."""
        found = self._store.get_if_other(f"{self._folder}{name}", self._seen.get(name, ""), most)
        if found is None:
            return None
        self._seen[name] = found.etag
        return found.body

    def clear(self) -> None:
        for key in self._store.list_keys(self._folder):
            self._store.delete(key)
