from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.record_fields import UnreadableRecord
from skillopt_airflow.core.split_by_list import place_id, split_by_list
from skillopt_airflow.core.split_by_ratio import split_by_ratio
from skillopt_airflow.core.types import JsonObject, Split

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
