import math
import random
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import DATA_SPLITS, JsonObject, Split
from skillopt_airflow.tasks.record_fields import UnreadableRecord
from skillopt_airflow.tasks.splits import place_id, split_by_list, split_by_ratio, split_counts

RECORDS: list[JsonObject] = [{"id": name} for name in "abcd"]
LISTED = {Split.TRAIN: ("c", "a"), Split.VAL: ("d",), Split.TEST: ("b",)}


@given(st.integers(3, 60), st.sampled_from(["2:1:7", "1:1:1:1"]), st.randoms())
def test_a_split_that_is_listed_is_the_split_whatever_the_order_of_the_records(
    count: int, ratio: str, order: Random
) -> None:
    records: list[JsonObject] = [{"id": str(number)} for number in range(count + 10)]
    cut = split_by_ratio(records, ratio, 1)
    listed = {split: [str(record["id"]) for record in rows] for split, rows in cut.items()}
    order.shuffle(records)
    assert split_by_list(records, [str(record["id"]) for record in records], listed) == cut


def test_records_that_are_not_listed_are_left_out() -> None:
    found = split_by_list([*RECORDS, {"id": "e"}, {}], [*"abcde", ""], LISTED)
    assert found == {Split.TRAIN: [RECORDS[2], RECORDS[0]], Split.VAL: [RECORDS[3]], Split.TEST: [RECORDS[1]]}


def test_an_id_may_be_spelled_with_colons_as_skillopt_does() -> None:
    ids = ["202602-22", "202602-8", "mmrb:a:1", "202511-1"]
    listed = {Split.TRAIN: ("202602:8", "mmrb:a:1"), Split.VAL: ("202602-22",), Split.TEST: ("202511:1",)}
    found = split_by_list(RECORDS, ids, listed)
    assert found == {Split.TRAIN: [RECORDS[1], RECORDS[2]], Split.VAL: [RECORDS[0]], Split.TEST: [RECORDS[3]]}
    with pytest.raises(DataError, match=r"more than once: 202602-8; .*no record has: 202602:9$"):
        split_by_list(RECORDS, ids, listed | {Split.TEST: ("202602-8", "202602:9")})


def test_a_record_without_an_id_keeps_its_place() -> None:
    listed = LISTED | {Split.TRAIN: ("c", place_id(Split.TRAIN, 2))}
    kept, lost = split_by_list(RECORDS, "abcd", listed)[Split.TRAIN]
    assert kept == RECORDS[2]
    assert isinstance(lost, UnreadableRecord)
    # So does one whose id another record has.
    listed |= {Split.TRAIN: ("b", place_id(Split.TRAIN, 2)), Split.TEST: ("a",)}
    kept, repeated = split_by_list(RECORDS, "abbd", listed)[Split.TRAIN]
    assert kept == RECORDS[1]
    assert isinstance(repeated, UnreadableRecord)
    with pytest.raises(DataError, match="train-row-3"):
        split_by_list(RECORDS, "abcd", LISTED | {Split.TRAIN: ("c", place_id(Split.TRAIN, 3))})


@pytest.mark.parametrize(
    ("ids", "listed", "message"),
    [
        ("abcd", {Split.TRAIN: "ab", Split.VAL: "c"}, "split test"),
        ("abcd", LISTED | {Split.FRESH: ("a",)}, "split fresh"),
        ("abcd", LISTED | {Split.VAL: ("d", "c", "d")}, "more than once: c, d$"),
        ("abcd", LISTED | {Split.VAL: tuple("uvwxyz")}, "no record has: u, v, w, x, y and 1 more$"),
        ("abbd", LISTED, "no record has: c; .*several records have: b$"),
        ("ab d", LISTED | {Split.VAL: ("",)}, "no record has: c, $"),
    ],
)
def test_what_does_not_fit_is_named(ids: str, listed: dict[Split, tuple[str, ...]], message: str) -> None:
    with pytest.raises(DataError, match=message):
        split_by_list(RECORDS, [name.strip() for name in ids], listed)


PARTS = st.integers(1, 20)


@pytest.mark.parametrize("ratio", ["2:1:7", "7:1:2", "1:1:1", "3:1:6", "70:15:15"])
def test_counts_are_those_of_the_reference_implementation(ratio: str) -> None:
    parts = [int(part) for part in ratio.split(":")]
    for total in range(3, 5001):
        shares = [total * part / sum(parts) for part in parts]
        expected = [math.floor(share) for share in shares]
        waiting = [0, 1, 2]
        while sum(expected) < total:
            chosen = max(waiting, key=lambda place: (math.modf(shares[place])[0], parts[place], -place))
            waiting.remove(chosen)
            expected[chosen] += 1
        assert split_counts(total, parts) == expected, total


@given(st.lists(st.integers()), PARTS, PARTS, PARTS, st.integers())
def test_every_record_lands_in_one_split_and_no_share_is_off_by_one(
    records: list[int], train: int, val: int, test: int, seed: int
) -> None:
    splits = split_by_ratio(records, f"{train}:{val}:{test}", seed)
    assert sorted(record for part in splits.values() for record in part) == sorted(records)
    for split, share in zip(DATA_SPLITS, (train, val, test), strict=True):
        assert abs(len(splits[split]) - len(records) * share / (train + val + test)) < 1
    assert split_by_ratio(records, f"{train}:{val}:{test}", seed) == splits


def test_the_order_is_the_seeded_shuffle_and_the_records_stay_as_they_are() -> None:
    records = list(range(100))
    shuffled = list(range(100))
    random.Random(7).shuffle(shuffled)
    splits = split_by_ratio(records, "2:1:7", seed=7)
    assert splits[Split.TRAIN] + splits[Split.VAL] + splits[Split.TEST] == shuffled
    assert records == list(range(100))


def test_a_fourth_part_is_the_split_of_publishing() -> None:
    splits = split_by_ratio(range(100), "2:1:5:2", seed=42)
    sizes = {Split.TRAIN: 20, Split.VAL: 10, Split.TEST: 50, Split.PUBLISH: 20}
    assert {split: len(part) for split, part in splits.items()} == sizes
    assert sorted(record for part in splits.values() for record in part) == list(range(100))


@given(st.lists(st.sampled_from(["", "a", "b", "c", "d", "e"]), max_size=60), PARTS, PARTS, PARTS, st.integers())
def test_a_group_lies_in_one_split_and_no_share_is_off_by_more_than_the_largest(
    groups: list[str], train: int, val: int, test: int, seed: int
) -> None:
    splits = split_by_ratio(range(len(groups)), f"{train}:{val}:{test}", seed, groups)
    assert sorted(place for part in splits.values() for place in part) == list(range(len(groups)))
    homes = {
        group: {split for split, part in splits.items() for place in part if groups[place] == group} for group in groups
    }
    assert all(len(found) == 1 for group, found in homes.items() if group)
    largest = max(Counter(group for group in groups if group).values(), default=1)
    for split, share in zip(DATA_SPLITS, (train, val, test), strict=True):
        assert abs(len(splits[split]) - len(groups) * share / (train + val + test)) < 1 + largest


@given(st.lists(st.integers()), st.integers())
def test_records_without_a_group_are_cut_as_if_nothing_had_one(records: list[int], seed: int) -> None:
    assert split_by_ratio(records, "2:1:7", seed, [""] * len(records)) == split_by_ratio(records, "2:1:7", seed)
