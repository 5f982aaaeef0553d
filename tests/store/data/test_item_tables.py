import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.config.resource_groups import DataGroup
from skillopt_airflow.core.errors import ObjectMissing
from skillopt_airflow.core.values.types import Item, ItemFile, Split
from skillopt_airflow.store.data import item_tables
from skillopt_airflow.store.data.data_manifest import ListedItems, SplitList, data_manifest
from skillopt_airflow.store.data.item_tables import find_item, load_item_refs, load_items, save_items
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
    monkeypatch.setattr(item_tables, "GROUP", group)
    save_items(store, "val", ITEMS)
    assert load_item_refs(store, "val") == [
        (item.id, item.fingerprint, item.group, item.unusable, item.task_types) for item in ITEMS
    ]
    assert load_items(store, "val", {0, 2}) == [ITEMS[0], ITEMS[2]]
    assert load_items(store, "val", [1]) == ITEMS[1:2]
    assert load_items(store, "val", []) == []


def test_the_fingerprint_is_of_what_a_file_holds_and_not_of_where_it_was() -> None:
    item = ITEMS[2]
    moved = item.model_copy(update={"files": (ItemFile(name="input.xlsx", path="c.xlsx", sha256="1" * 64),)})
    changed = item.model_copy(update={"files": (ItemFile(name="input.xlsx", path="a/b.xlsx", sha256="3" * 64),)})
    golden = item.model_copy(update={"reference_files": ()})
    grouped = item.model_copy(update={"group": "b"})
    assert moved.fingerprint == grouped.fingerprint == item.fingerprint
    assert len({item.fingerprint, changed.fingerprint, golden.fingerprint}) == 3


LISTED = [Item(id=name, public={"q": name}, reference={"a": [name]}) for name in "abc"]


def splits(items: list[Item]) -> dict[Split, list[Item]]:
    return {Split.TRAIN: items, Split.VAL: LISTED[:1], Split.TEST: []}


def test_a_manifest_tells_where_the_items_come_from() -> None:
    manifest = data_manifest(DataGroup(uri="x.json", limit=3), splits(LISTED))
    told = (manifest.uri, manifest.split_mode, manifest.split_ratio, manifest.split_seed, manifest.limit)
    assert told == ("x.json", "ratio", "2:1:7", 42, 3)
    assert {split: part.count for split, part in manifest.splits.items()} == {"train": 3, "val": 1, "test": 0}
    assert manifest.splits[Split.TRAIN].ids == ("a", "b", "c")
    manifest = data_manifest(DataGroup(split_mode="split_dir"), splits(LISTED))
    assert (manifest.split_ratio, manifest.split_seed) == (None, None)
    listed = DataGroup(split_mode="manifest", split_manifest="s3://b/data_manifest.json")
    manifest = data_manifest(listed, splits(LISTED))
    assert (manifest.split_manifest, manifest.split_ratio) == ("s3://b/data_manifest.json", None)


def test_what_splits_a_data_set_alike_is_read_of_a_manifest_or_written_by_hand() -> None:
    body = json.dumps(data_manifest(DataGroup(), splits(LISTED)).to_json())
    read = SplitList.model_validate_json(body).splits
    assert {split: part.ids for split, part in read.items()} == {
        Split.TRAIN: ("a", "b", "c"),
        Split.VAL: ("a",),
        Split.TEST: (),
    }
    numbered = SplitList.model_validate_json('{"splits": {"train": {"ids": [7, "a"]}}}')
    assert numbered.splits == {Split.TRAIN: ListedItems(ids=("7", "a"))}


@given(st.permutations(LISTED))
def test_a_fingerprint_is_of_the_items_and_not_of_their_order(items: list[Item]) -> None:
    def fingerprint(items: list[Item]) -> str:
        return data_manifest(DataGroup(), splits(items)).splits[Split.TRAIN].fingerprint

    assert fingerprint(items) == fingerprint(LISTED)
    assert fingerprint(items[:2]) != fingerprint(LISTED)
    changed = items[0].model_copy(update={"reference": {"a": ["other"]}})
    assert fingerprint([changed, *items[1:]]) != fingerprint(LISTED)
