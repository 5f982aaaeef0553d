import pytest

from skillopt_airflow.core.errors import DataError, ObjectMissing
from skillopt_airflow.core.values.types import Item, ItemFile
from skillopt_airflow.store.data import items
from skillopt_airflow.store.data.items import find_item, load_item_refs, load_items, save_items
from skillopt_airflow.store.objects import ObjectStore

ITEMS = [
    Item(id="z", public={"question": "é?", "n": [1, None, 0.5]}, reference={"answers": ["x"]}),
    Item(id="a", public={}, reference={}),
    Item(
        id="f",
        public={},
        reference={},
        files=(ItemFile(name="input.xlsx", path="a/b.xlsx", sha256="1" * 64),),
        reference_files=(ItemFile(name="golden.xlsx", path="a/*.xlsx", sha256="2" * 64),),
        group="a",
        task_types=("cell", "sheet"),
    ),
    Item(id="n", public={}, reference={}, unusable="answers is empty"),
]


def test_items_come_back_in_order_and_by_their_ids(store: ObjectStore) -> None:
    with pytest.raises(ObjectMissing, match=r"data/val\.parquet"):
        load_items(store, "data/val.parquet")
    save_items(store, "data/val.parquet", ITEMS)
    assert load_items(store, "data/val.parquet") == ITEMS
    save_items(store, "data/empty.parquet", [])
    assert load_items(store, "data/empty.parquet") == []
    assert [find_item(store, "data/val.parquet", item.id) for item in ITEMS] == ITEMS
    assert find_item(store, "data/val.parquet", "Z") is None
    assert find_item(store, "data/test.parquet", "z") is None


@pytest.mark.parametrize("group", [1, 2, 2000])
def test_some_items_come_back_by_their_places(store: ObjectStore, monkeypatch: pytest.MonkeyPatch, group: int) -> None:
    monkeypatch.setattr(items, "GROUP", group)
    save_items(store, "val", ITEMS)
    assert load_item_refs(store, "val") == [
        (item.id, item.fingerprint, item.group, item.unusable, item.task_types) for item in ITEMS
    ]
    assert load_items(store, "val", {0, 2}) == [ITEMS[0], ITEMS[2]]
    assert load_items(store, "val", [1]) == ITEMS[1:2]
    assert load_items(store, "val", []) == []


def test_a_file_that_is_not_stored_keeps_its_item_from_being_saved(store: ObjectStore) -> None:
    lost = ITEMS[2].model_copy(update={"files": (ItemFile(name="input.xlsx", path="a/b.xlsx"),)})
    with pytest.raises(DataError, match=r"item f: its file input\.xlsx was not stored"):
        save_items(store, "data/val.parquet", [lost])
    assert not store.exists("data/val.parquet")


def test_the_fingerprint_is_of_what_a_file_holds_and_not_of_where_it_was() -> None:
    item = ITEMS[2]
    moved = item.model_copy(update={"files": (ItemFile(name="input.xlsx", path="c.xlsx", sha256="1" * 64),)})
    changed = item.model_copy(update={"files": (ItemFile(name="input.xlsx", path="a/b.xlsx", sha256="3" * 64),)})
    golden = item.model_copy(update={"reference_files": ()})
    grouped = item.model_copy(update={"group": "b"})
    assert moved.fingerprint == grouped.fingerprint == item.fingerprint
    assert len({item.fingerprint, changed.fingerprint, golden.fingerprint}) == 3
