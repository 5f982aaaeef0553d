import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skillopt_airflow.core.errors import ObjectMissing
from skillopt_airflow.store import stored_parquet
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.parquet import to_parquet
from skillopt_airflow.store.stored_parquet import opened, text_bounds
from tests.training.local_store import LocalStore

ROWS = 3000
TEXTS = [random.Random(row).randbytes(100).hex() for row in range(ROWS)]
TABLE = pa.table({"id": [str(row) for row in range(ROWS)], "text": TEXTS, "score": [row / ROWS for row in range(ROWS)]})


@pytest.mark.parametrize("tail", [1000, 300_000, 10_000_000])
def test_what_is_read_is_what_was_stored(store: ObjectStore, monkeypatch: pytest.MonkeyPatch, tail: int) -> None:
    monkeypatch.setattr(stored_parquet, "TAIL", tail)
    store.put_bytes("key", to_parquet(TABLE))
    assert opened(store, "key").read().equals(TABLE)
    assert opened(store, "key").read(columns=["id", "score"]).equals(TABLE.drop_columns(["text"]))


def test_columns_that_are_not_read_are_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stored_parquet, "TAIL", 1000)
    store, body = LocalStore(), to_parquet(TABLE)
    store.put_bytes("key", body)
    opened(store, "key").read(columns=["id", "score"])
    assert 0 < store.fetched < len(body) / 3


def test_an_object_that_is_not_there_or_goes_meanwhile_is_missing(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_parquet, "TAIL", 1000)
    with pytest.raises(ObjectMissing):
        opened(store, "key")
    store.put_bytes("key", to_parquet(TABLE))
    file = opened(store, "key")
    store.delete("key")
    with pytest.raises(ObjectMissing):
        file.read(columns=["id"])


def test_a_row_group_tells_its_smallest_and_largest_text() -> None:
    table = pa.table({"list": [["a", "b"]] * 4, "text": ["b", "é", "a", None], "same": ["x"] * 4})
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink, row_group_size=2)
    file = pq.ParquetFile(pa.BufferReader(sink.getvalue()))
    assert [text_bounds(file, group, "text") for group in (0, 1)] == [("b", "é"), None]
    assert text_bounds(file, 1, "same") == ("x", "x")
    bare = pa.BufferOutputStream()
    pq.write_table(table, bare, write_statistics=False)
    assert text_bounds(pq.ParquetFile(pa.BufferReader(bare.getvalue())), 0, "same") is None
