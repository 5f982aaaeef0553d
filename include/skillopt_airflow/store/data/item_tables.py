"""Prepared items of a run's splits, stored once so that all tasks of the run use the same ones."""

import json
from collections.abc import Collection, Sequence
from functools import cache
from tempfile import TemporaryFile

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skillopt_airflow.core.errors import ObjectMissing
from skillopt_airflow.core.values.types import Item, ItemFile, ItemRef, canonical_json
from skillopt_airflow.store import keys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.tables.parquet import open_parquet, to_parquet

ITEMS: pa.Schema = pa.schema(
    [
        pa.field(column, pa.string(), nullable=False)
        for column in (
            *("id", "public", "reference", "files", "reference_files"),
            *("group", "unusable", "task_types", "image", "fingerprint"),
        )
    ]
)
"""One row per item, in the split's order; all columns except id, group, unusable and fingerprint are JSON."""
GROUP = 2000
"""Items per row group, which limits the read of a few items."""
_PARTS = ("public", "reference", "files", "reference_files", "task_types", "image")


def save_items(store: ObjectStore, key: str, items: Sequence[Item]) -> None:
    """Write a split, whose files must be stored already; equal items give equal rows."""
    refs = [ITEMS.empty_table().select(ItemRef._fields)]
    # On disk, to avoid a second copy of the items in memory.
    with TemporaryFile() as spool:
        with pq.ParquetWriter(spool, ITEMS, compression="zstd") as writer:
            for start in range(0, len(items), GROUP):
                rows = pa.Table.from_pylist([_row(item) for item in items[start : start + GROUP]], ITEMS)
                writer.write_table(rows)
                refs.append(rows.select(ItemRef._fields))
        spool.seek(0)
        store.put_bytes(key, spool)
    store.put_bytes(keys.item_refs(key), to_parquet(pa.concat_tables(refs)))


def load_items(store: ObjectStore, key: str, places: Collection[int] | None = None) -> list[Item]:
    """Return the items of a split in its order, or only those at a few places (0-based).

    Raises:
        ObjectMissing: the split isn't stored.
    """
    file, first, items = open_parquet(store, key), 0, []
    for group in range(file.num_row_groups):
        size = file.metadata.row_group(group).num_rows
        wanted = range(size) if places is None else [n for n in range(size) if first + n in places]
        if wanted:
            items += [_item(row) for row in file.read_row_group(group).take(pa.array(wanted)).to_pylist()]
        first += size
    return items


def find_item(store: ObjectStore, key: str, item_id: str) -> Item | None:
    """Return an item of a split by its ID; None if the item or the split doesn't exist."""
    try:
        place = pc.index(load_ref_table(store, key, ["id"])["id"], item_id).as_py()
        return load_items(store, key, {place})[0] if place >= 0 else None
    except ObjectMissing:
        return None


def load_item_refs(store: ObjectStore, key: str) -> list[ItemRef]:
    # Equal lists of types share one object.
    types = cache(lambda encoded: tuple(json.loads(encoded)))
    rows = load_ref_table(store, key).to_pylist()
    return [ItemRef(**row | {"task_types": types(row["task_types"])}) for row in rows]


def load_ref_table(store: ObjectStore, key: str, columns: Sequence[str] = ItemRef._fields) -> pa.Table:
    """Return columns of ItemRef of a split's items in its order; task_types are JSON."""
    # Each thread would keep a separate memory pool for these few bytes.
    return open_parquet(store, keys.item_refs(key)).read(columns=[*columns], use_threads=False)


def count_items(store: ObjectStore, key: str) -> int:
    """Return the number of items of a split, from the file's footer."""
    return int(open_parquet(store, key).metadata.num_rows)


def _item(row: dict[str, str]) -> Item:
    parts = {part: json.loads(row[part]) for part in _PARTS}
    return Item.model_validate(row | parts, extra="ignore")


def _row(item: Item) -> dict[str, str]:
    return {
        "id": item.id,
        "public": canonical_json(item.public),
        "reference": canonical_json(item.reference),
        "files": _files_json(item.files),
        "reference_files": _files_json(item.reference_files),
        "group": item.group,
        "unusable": item.unusable,
        "task_types": canonical_json([*item.task_types]),
        "image": canonical_json(None if item.image is None else item.image.model_dump(mode="json")),
        "fingerprint": item.fingerprint,
    }


def _files_json(files: Sequence[ItemFile]) -> str:
    return canonical_json([file.model_dump() for file in files])
