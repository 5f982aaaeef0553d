import pytest

from include.core.errors import ObjectMissing
from include.core.types import Item
from include.store.items import load_items, save_items
from include.store.objects import ObjectStore

ITEMS = [
    Item(id="z", public={"question": "é?", "n": [1, None, 0.5]}, reference={"answers": ["x"]}),
    Item(id="a", public={}, reference={}),
]


def test_items_come_back_in_order(store: ObjectStore) -> None:
    save_items(store, "data/val.parquet", ITEMS)
    assert load_items(store, "data/val.parquet") == ITEMS
    save_items(store, "data/empty.parquet", [])
    assert load_items(store, "data/empty.parquet") == []


def test_a_split_that_was_not_saved_is_named(store: ObjectStore) -> None:
    with pytest.raises(ObjectMissing, match=r"data/val\.parquet"):
        load_items(store, "data/val.parquet")
