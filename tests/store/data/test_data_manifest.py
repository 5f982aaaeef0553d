import json

from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.config.resource_groups import DataGroup
from skillopt_airflow.core.values.types import Item, Split
from skillopt_airflow.store.data.data_manifest import ListedItems, SplitList, data_manifest

ITEMS = [Item(id=name, public={"q": name}, reference={"a": [name]}) for name in "abc"]


def splits(items: list[Item]) -> dict[Split, list[Item]]:
    return {Split.TRAIN: items, Split.VAL: ITEMS[:1], Split.TEST: []}


def test_a_manifest_tells_where_the_items_come_from() -> None:
    manifest = data_manifest(DataGroup(uri="x.json", limit=3), splits(ITEMS))
    told = (manifest.uri, manifest.split_mode, manifest.split_ratio, manifest.split_seed, manifest.limit)
    assert told == ("x.json", "ratio", "2:1:7", 42, 3)
    assert {split: part.count for split, part in manifest.splits.items()} == {"train": 3, "val": 1, "test": 0}
    assert manifest.splits[Split.TRAIN].ids == ("a", "b", "c")
    manifest = data_manifest(DataGroup(split_mode="split_dir"), splits(ITEMS))
    assert (manifest.split_ratio, manifest.split_seed) == (None, None)
    listed = DataGroup(split_mode="manifest", split_manifest="s3://b/data_manifest.json")
    manifest = data_manifest(listed, splits(ITEMS))
    assert (manifest.split_manifest, manifest.split_ratio) == ("s3://b/data_manifest.json", None)


def test_what_splits_a_data_set_alike_is_read_of_a_manifest_or_written_by_hand() -> None:
    body = json.dumps(data_manifest(DataGroup(), splits(ITEMS)).to_json())
    read = SplitList.model_validate_json(body).splits
    assert {split: part.ids for split, part in read.items()} == {
        Split.TRAIN: ("a", "b", "c"),
        Split.VAL: ("a",),
        Split.TEST: (),
    }
    numbered = SplitList.model_validate_json('{"splits": {"train": {"ids": [7, "a"]}}}')
    assert numbered.splits == {Split.TRAIN: ListedItems(ids=("7", "a"))}


@given(st.permutations(ITEMS))
def test_a_fingerprint_is_of_the_items_and_not_of_their_order(items: list[Item]) -> None:
    def fingerprint(items: list[Item]) -> str:
        return data_manifest(DataGroup(), splits(items)).splits[Split.TRAIN].fingerprint

    assert fingerprint(items) == fingerprint(ITEMS)
    assert fingerprint(items[:2]) != fingerprint(ITEMS)
    changed = items[0].model_copy(update={"reference": {"a": ["other"]}})
    assert fingerprint([changed, *items[1:]]) != fingerprint(ITEMS)
