"""A try of the conditional writes by which published versions and budgets are kept safe."""

import logging

from skillopt_airflow.core.errors import Conflict, StoreError
from skillopt_airflow.store.objects import ObjectStore

log = logging.getLogger(__name__)

OTHER = '"00000000000000000000000000000000"'
"""A tag that no object has."""


def check_conditional_write(store: ObjectStore, key: str) -> None:
    """Create an object of which nothing is left, and see that a second writer would be told.

    Args:
        store: a bucket.
        key: one that nobody else uses at the same time; what an interrupted try left there is no hindrance.

    Raises:
        StoreError: the bucket refuses writes, or its store ignores their condition.
    """
    ignored = _ignored(store, key)
    _remove(store, key)
    if ignored:
        raise StoreError(
            f"{store.address(key)}: the object store wrote over an object that {ignored} protects, so two publishers "
            "could overwrite each other, and tasks each other's part of a budget; use a store with conditional writes"
        )


def _ignored(store: ObjectStore, key: str) -> str:
    """Return the condition that the store ignores; empty if it keeps both."""
    for _ in range(2):
        try:
            store.create(key, b"")
        except Conflict:
            break
    else:
        return "If-None-Match"
    try:
        store.replace(key, b"", OTHER)
    except Conflict:
        return ""
    return "If-Match"


def _remove(store: ObjectStore, key: str) -> None:
    """Remove the object; a bucket that never forgets keeps an empty one."""
    try:
        store.delete(key)
    except StoreError as error:
        log.warning("An empty object stays: %s", error)
