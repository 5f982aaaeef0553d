"""The items of a run's splits, stored once so that every task of the run sees the same ones."""

import json
from collections.abc import Sequence

import pyarrow as pa

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.types import Item, ItemFile, canonical_json
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.parquet import from_parquet, to_parquet

ITEMS: pa.Schema = pa.schema(
    [
        pa.field(column, pa.string(), nullable=False)
        for column in ("id", "public", "reference", "files", "reference_files", "fingerprint")
    ]
)
"""One row an item, in the split's order; all but id and fingerprint are JSON."""


def save_items(store: ObjectStore, key: str, items: Sequence[Item]) -> None:
    """Write a split; equal items give equal rows.

    Raises:
        DataError: a file of an item was not stored before.
    """
    for item in items:
        for file in (*item.files, *item.reference_files):
            if not file.sha256:
                raise DataError(f"item {item.id}: its file {file.name} was not stored before the item")
    rows = [
        {
            "id": item.id,
            "public": canonical_json(item.public),
            "reference": canonical_json(item.reference),
            "files": _files_json(item.files),
            "reference_files": _files_json(item.reference_files),
            "fingerprint": item.fingerprint,
        }
        for item in items
    ]
    store.put_bytes(key, to_parquet(pa.Table.from_pylist(rows, schema=ITEMS)))


def load_items(store: ObjectStore, key: str) -> list[Item]:
    """Return the items of a split, in its order.

    Raises:
        ObjectMissing: the split was not saved.
    """
    rows = from_parquet(store.get_bytes(key)).to_pylist()
    parts = ("public", "reference", "files", "reference_files")
    # A column may be missing whose field has a default.
    found = ({"id": row["id"]} | {part: json.loads(row[part]) for part in parts if part in row} for row in rows)
    return [Item.model_validate(item, extra="ignore") for item in found]


def _files_json(files: Sequence[ItemFile]) -> str:
    return canonical_json([file.model_dump() for file in files])
