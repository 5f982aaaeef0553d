from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.config import DataGroup
from skillopt_airflow.core.types import Item, Split
from skillopt_airflow.store.data_manifest import data_manifest

ITEMS = [Item(id=name, public={"q": name}, reference={"a": [name]}) for name in "abc"]


def splits(items: list[Item]) -> dict[Split, list[Item]]:
    return {Split.TRAIN: items, Split.VAL: ITEMS[:1], Split.TEST: []}


def test_a_manifest_tells_where_the_items_come_from() -> None:
    manifest = data_manifest(DataGroup(uri="x.json", limit=3), splits(ITEMS))
    assert (manifest.uri, manifest.split_mode, manifest.split_ratio, manifest.split_seed) == (
        "x.json",
        "ratio",
        "2:1:7",
        42,
    )
    assert manifest.limit == 3
    assert {split: part.count for split, part in manifest.splits.items()} == {"train": 3, "val": 1, "test": 0}
    assert manifest.splits[Split.TRAIN].ids == ("a", "b", "c")


def test_a_split_folder_has_no_ratio_and_seed() -> None:
    manifest = data_manifest(DataGroup(split_mode="split_dir"), splits(ITEMS))
    assert (manifest.split_ratio, manifest.split_seed) == (None, None)


@given(st.permutations(ITEMS))
def test_a_fingerprint_is_of_the_items_and_not_of_their_order(items: list[Item]) -> None:
    def fingerprint(items: list[Item]) -> str:
        return data_manifest(DataGroup(), splits(items)).splits[Split.TRAIN].fingerprint

    assert fingerprint(items) == fingerprint(ITEMS)
    assert fingerprint(items[:2]) != fingerprint(ITEMS)
    changed = items[0].model_copy(update={"reference": {"a": ["other"]}})
    assert fingerprint([changed, *items[1:]]) != fingerprint(ITEMS)
