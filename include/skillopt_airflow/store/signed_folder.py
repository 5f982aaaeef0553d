"""A folder of the bucket that a task shares with programs that hold no credentials: what it puts there, they fetch."""

from typing import Literal

from skillopt_airflow.store.objects import ObjectStore


class ExchangeFolder:
    """Objects that others reach by signed addresses, one object and one method each, good for some time.

    Every method raises StoreError as `ObjectStore` does.
    """

    def __init__(self, store: ObjectStore, folder: str) -> None:
        self._store = store
        self._folder = folder
        self._seen: dict[str, str] = {}

    def put(self, name: str, body: bytes) -> None:
        """Leave something for the other side."""
        self._store.put_bytes(f"{self._folder}{name}", body)

    def address(self, name: str, method: Literal["get", "put"], seconds: int) -> str:
        """Where the other side fetches or leaves an object; whoever has the address may, for so many seconds."""
        return self._store.signed_address(f"{self._folder}{name}", method, seconds)

    def take(self, name: str, most: int) -> bytes | None:
        """What the other side left, if it did so since the last time and it has at most `most` bytes."""
        found = self._store.get_if_other(f"{self._folder}{name}", self._seen.get(name, ""), most)
        if found is None:
            return None
        self._seen[name] = found.etag
        return found.body

    def clear(self) -> None:
        """Remove everything."""
        for key in self._store.list_keys(self._folder):
            self._store.delete(key)
