"""The items of a run's splits, stored once so that every task of the run sees the same."""

import json
from collections.abc import Sequence

import pyarrow as pa

from include.core.types import Item, canonical_json
from include.store.objects import ObjectStore
from include.store.tables import from_parquet, to_parquet

ITEMS: pa.Schema = pa.schema(
    [pa.field(column, pa.string(), nullable=False) for column in ("id", "public", "reference", "fingerprint")]
)
"""One row an item, in the split's order; public and reference are JSON."""


def save_items(store: ObjectStore, key: str, items: Sequence[Item]) -> None:
    """Write a split; equal items give equal rows."""
    rows = [
        {
            "id": item.id,
            "public": canonical_json(item.public),
            "reference": canonical_json(item.reference),
            "fingerprint": item.fingerprint,
        }
        for item in items
    ]
    store.put_bytes(key, to_parquet(pa.Table.from_pylist(rows, schema=ITEMS)))


def load_items(store: ObjectStore, key: str) -> list[Item]:
    """The items of a split, in its order.

    Raises:
        ObjectMissing: the split was not saved.
    """
    rows = from_parquet(store.get_bytes(key)).to_pylist()
    return [
        Item(id=row["id"], public=json.loads(row["public"]), reference=json.loads(row["reference"])) for row in rows
    ]
