"""A place of runs whose requests to the object store are counted, where botocore sends and receives them."""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Self

from bench.large_run import Place

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client


KINDS: Mapping[str, str] = {
    "GetObject": "gets",
    "PutObject": "puts",
    "CreateBucket": "puts",
    "ListObjectsV2": "lists",
    "DeleteObject": "deletes",
}
"""By operation, what it counts as."""


@dataclass
class Used:
    """The costs of a stage: requests by what providers bill them as, bytes of their bodies, and CPU seconds."""

    gets: int = 0
    puts: int = 0
    lists: int = 0
    deletes: int = 0
    bytes_read: int = 0
    bytes_written: int = 0
    cpu_seconds: float = 0.0

    @property
    def requests(self) -> int:
        """Return all requests."""
        return self.gets + self.puts + self.lists + self.deletes

    def __add__(self, other: Self) -> Self:
        return self._with(other, 1)

    def __sub__(self, other: Self) -> Self:
        return self._with(other, -1)

    def _with(self, other: Self, sign: int) -> Self:
        names = [one.name for one in fields(self)]
        return type(self)(**{name: getattr(self, name) + sign * getattr(other, name) for name in names})


@dataclass(frozen=True)
class CountedPlace(Place):
    """A place whose clients count; the count is of this process."""

    used: Used = field(default_factory=Used)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, place: Place) -> Self:
        """Return a place that counts what is done at another one."""
        return cls(place.endpoint, place.data, place.run)

    @property
    def client(self) -> "S3Client":
        """Return a client of the S3 server that counts."""
        client = super().client

        def sent(request: Any, **_: Any) -> None:
            with self.lock:
                self.used.bytes_written += int(request.headers.get("Content-Length", 0))

        def answered(model: Any, http_response: Any, parsed: Any, **_: Any) -> None:
            # The body of an object that is there is read later.
            length = parsed["ContentLength"] if "Body" in parsed else len(http_response.content)
            kind = KINDS[model.name]
            with self.lock:
                setattr(self.used, kind, getattr(self.used, kind) + 1)
                self.used.bytes_read += length

        client.meta.events.register("before-send.s3", sent)
        client.meta.events.register("after-call.s3", answered)
        return client

    @contextmanager
    def metered(self) -> Iterator[Used]:
        """Yield what the block takes, which is complete behind it."""
        before, began, taken = replace(self.used), time.process_time(), Used()
        try:
            yield taken
        finally:
            found = self.used - before
            for one in fields(taken):
                setattr(taken, one.name, getattr(found, one.name))
            taken.cpu_seconds = time.process_time() - began
