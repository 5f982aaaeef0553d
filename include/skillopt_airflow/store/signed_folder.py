"""A folder of the bucket through which a task and programs without credentials exchange objects."""

from typing import Literal

from skillopt_airflow.store.objects import ObjectStore


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

    def address(self, name: str, method: Literal["get", "put"], seconds: int) -> str:
        return self._store.signed_address(f"{self._folder}{name}", method, seconds)

    def shared_address(self, key: str, seconds: int) -> str:
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
