"""Documents that several tasks change at the same time: each change is read, made and written on a condition."""

from collections.abc import Callable
from typing import TypeVar
from uuid import uuid4

from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from skillopt_airflow.core.documents import Kind
from skillopt_airflow.core.errors import Conflict, ObjectMissing, StoreUnavailable
from skillopt_airflow.store import keys
from skillopt_airflow.store.objects import ObjectStore, model_bytes
from skillopt_airflow.store.write_probe import check_conditional_write

FIRST_PAUSE = 0.02
"""Seconds that a writer who was not first waits at most; the limit doubles."""
LONGEST_PAUSE = 2.0
PATIENCE = 60.0
"""Seconds after which it gives up, also on a store that does not answer."""

Result = TypeVar("Result")


def change_document(store: ObjectStore, key: str, first: Kind, change: Callable[[Kind], tuple[Kind, Result]]) -> Result:
    """Replace a document by what `change` makes of it, nobody coming between, and return the result.

    Args:
        store: the store.
        key: the document's key.
        first: the document where there is none yet.
        change: returns the new document and the result; it may be called several times. An equal document is not
            written.

    Raises:
        StoreError: the store writes whatever the condition.
        Conflict: others were always first.
        StoreUnavailable: the store does not answer.
    """
    retrying = Retrying(
        stop=stop_after_delay(PATIENCE),
        wait=wait_random_exponential(FIRST_PAUSE, max=LONGEST_PAUSE),
        retry=retry_if_exception_type((Conflict, ObjectMissing, StoreUnavailable)),
        reraise=True,
    )
    result: Result = retrying(_change, store, key, first, change)
    return result


def _change(store: ObjectStore, key: str, first: Kind, change: Callable[[Kind], tuple[Kind, Result]]) -> Result:
    try:
        before, etag = store.get_tagged_model(key, type(first))
    except ObjectMissing:
        before, etag = first, ""
    after, result = change(before)
    if after == before:
        return result
    if etag:
        store.replace(key, model_bytes(after), etag)
    else:
        check_conditional_write(store, keys.write_probe(key, uuid4().hex))
        store.create_model(key, after)
    return result
