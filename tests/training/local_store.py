"""An object store in memory, with the rules of the real one: conditional writes, sorted listings."""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from threading import Lock
from typing import IO

from skillopt_airflow.core.errors import Conflict, ObjectMissing
from skillopt_airflow.store.objects import ObjectStore, StoredObject


class LocalStore(ObjectStore):
    """`before_write` is called with the key of each write, and may raise to play a process that dies there.

    `before_read` is called with the key of each read.
    """

    def __init__(self) -> None:
        self.bucket = "local"
        self.objects: dict[str, bytes] = {}
        self.fetched = 0
        """Bytes of parts of objects that were read."""
        self.before_write: Callable[[str], None] = lambda key: None
        self.before_read: Callable[[str], None] = lambda key: None
        self.clock: Callable[[], datetime] = lambda: datetime.now(UTC)
        made = datetime.now(UTC)
        self.written: dict[str, datetime] = defaultdict(lambda: made)
        """When each object was; one that a test puts among `objects` itself is as old as the store."""
        self._lock = Lock()

    def get(self, key: str) -> StoredObject:
        self.before_read(key)
        try:
            body = self.objects[key]
        except KeyError:
            raise ObjectMissing(f"nothing is stored as {self.address(key)}") from None
        return StoredObject(body, hashlib.sha256(body).hexdigest())

    def get_range(self, key: str, start: int, stop: int) -> bytes:
        self.fetched += stop - start
        return self.get(key).body[start:stop]

    def get_tail(self, key: str, length: int) -> tuple[bytes, int]:
        body = self.get(key).body
        self.fetched += min(length, len(body))
        return body[-length:], len(body)

    def put_bytes(self, key: str, body: bytes | IO[bytes]) -> None:
        self.before_write(key)
        content = body if isinstance(body, bytes) else body.read()
        with self._lock:
            self.objects[key], self.written[key] = content, self.clock()

    def create(self, key: str, body: bytes) -> None:
        self.before_write(key)
        with self._lock:
            if key in self.objects:
                raise Conflict(key)
            self.objects[key], self.written[key] = body, self.clock()

    def replace(self, key: str, body: bytes, etag: str) -> None:
        self.before_write(key)
        with self._lock:
            if self.get(key).etag != etag:
                raise Conflict(key)
            self.objects[key], self.written[key] = body, self.clock()

    def delete(self, key: str) -> None:
        with self._lock:
            self.objects.pop(key, None)

    def exists(self, key: str) -> bool:
        return key in self.objects

    def list_keys(self, prefix: str) -> list[str]:
        with self._lock:
            return sorted(key for key in self.objects if key.startswith(prefix))

    def list_folders(self, prefix: str) -> list[str]:
        below = (key.removeprefix(prefix).partition("/") for key in self.list_keys(prefix))
        return sorted({name for name, slash, _ in below if slash})

    def _list(self, prefix: str) -> Iterator[tuple[str, datetime]]:
        yield from ((key, self.written[key]) for key in self.list_keys(prefix))
