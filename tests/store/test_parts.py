import random
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skillopt_airflow.core.timeline import Moment
from skillopt_airflow.core.types import ModelCall
from skillopt_airflow.store import parts
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.parquet import to_parquet
from skillopt_airflow.store.parts import FEW, counted, merge_parts, merge_these, parts_of, read_parts
from skillopt_airflow.store.rollout_table import UsageTable

FOLDER = "table/"


def put(store: ObjectStore, name: str, *numbers: int) -> str:
    key = f"{FOLDER}part-{name}.parquet"
    store.put_bytes(key, to_parquet(pa.table({"number": numbers})))
    return key


def read(store: ObjectStore) -> list[int]:
    tables = read_parts(store, FOLDER, lambda file: file.read())
    return sorted(number for table in tables for number in table["number"].to_pylist())


class Interrupted(Exception):
    """The process that merges is gone."""


class Watched(ObjectStore):
    """A store in which something happens before every write and removal, or after the write of a merged part."""

    def __init__(
        self,
        store: ObjectStore,
        happens: Callable[[], object] = lambda: None,
        created: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(store._client, store.bucket)
        self._happens, self._created = happens, created

    def create(self, key: str, body: bytes) -> None:
        self._happens()
        super().create(key, body)
        self._created()

    def delete(self, key: str) -> None:
        self._happens()
        super().delete(key)


def dies_after(writes: int) -> Callable[[], None]:
    rest = [writes]

    def happens() -> None:
        rest[0] -= 1
        if rest[0] < 0:
            raise Interrupted

    return happens


def put_each(store: ObjectStore, names: range, prefix: str = "") -> list[str]:
    """Store one part per number."""
    return [put(store, f"{prefix}{number:02d}", number) for number in names]


def test_what_is_known_of_a_part_is_not_read_again(store: ObjectStore) -> None:
    known: dict[str, tuple[parts.Part, list[int]]] = {}
    asked: list[int] = []

    def numbers(file: pq.ParquetFile) -> list[int]:
        found: list[int] = file.read()["number"].to_pylist()
        asked.extend(found)
        return found

    written = [put(store, str(number), number) for number in range(3)]
    for expected in ([[0], [1], [2]], [[0], [1], [2]]):
        assert read_parts(store, FOLDER, numbers, known) == expected
    merge_these(store, FOLDER, written[:2])
    assert sorted(read_parts(store, FOLDER, numbers, known)) == [[0, 1], [2]]
    assert sorted(asked) == [0, 0, 1, 1, 2]
    assert len(known) == 2


def test_few_parts_are_left_as_they_are(store: ObjectStore) -> None:
    written = put_each(store, range(FEW))
    merge_parts(store, FOLDER)
    assert parts_of(store, FOLDER) == written
    put(store, "more", FEW)
    merge_parts(store, FOLDER)
    assert len(parts_of(store, FOLDER)) == 1
    assert read(store) == list(range(FEW + 1))


def test_a_large_stage_has_at_most_one_part_a_thousand_rows_and_one_more(store: ObjectStore) -> None:
    written = put_each(store, range(4))
    merge_parts(store, FOLDER, 999)
    merge_parts(store, FOLDER, 3000)
    assert parts_of(store, FOLDER) == written
    merge_parts(store, FOLDER, 2999)
    assert len(parts_of(store, FOLDER)) == 1


def test_a_writer_merges_its_own_parts_alone(store: ObjectStore) -> None:
    mine = put_each(store, range(3))
    other = put(store, "other", 3)
    merge_these(store, FOLDER, mine)
    before = parts_of(store, FOLDER)
    assert len(before) == 2
    assert other in before
    assert read(store) == [0, 1, 2, 3]
    merge_these(store, FOLDER, [other])
    assert parts_of(store, FOLDER) == before


def test_who_reads_at_any_moment_of_a_merge_finds_every_row_once(store: ObjectStore) -> None:
    found: list[list[int]] = []
    put_each(store, range(12))
    merge_parts(Watched(store, lambda: found.append(read(store))), FOLDER)
    assert found == [list(range(12))] * 13


@pytest.mark.nightly
@pytest.mark.parametrize("at", ["before it is written", "after it is written", "after it, while others count"])
def test_who_merges_some_of_the_parts_at_the_same_moment_doubles_no_row(store: ObjectStore, at: str) -> None:
    """The writer of some of the parts merges them beside who merges all of them."""
    mine = put_each(store, range(6), "mine-")
    put_each(store, range(6, 12), "other-")
    beside = Watched(store, created=lambda: counted(store, FOLDER)) if "count" in at else store
    once = [lambda: merge_these(beside, FOLDER, mine)]

    def merge() -> None:
        if once:
            once.pop()()

    merge_parts(Watched(store, merge) if at.startswith("before") else Watched(store, created=merge), FOLDER)
    assert read(store) == list(range(12))
    merge_parts(store, FOLDER)
    assert read(store) == list(range(12))


@pytest.mark.nightly
@pytest.mark.parametrize(("one", "other"), [(1, 1), (1, 4), (5, 1), (9, 1), (9, 9)])
def test_after_two_merges_of_some_of_the_same_parts_that_died_every_row_counts_once(
    store: ObjectStore, one: int, other: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "LONGEST_MERGE", timedelta(seconds=-2))
    written = put_each(store, range(12))

    def reads_until(writes: int) -> Callable[[], None]:
        dies = dies_after(writes)

        def happens() -> None:
            assert read(store) == list(range(12))
            dies()

        return happens

    def merge_others() -> None:
        with suppress(Interrupted):
            merge_these(Watched(store, reads_until(other)), FOLDER, written[4:])

    with suppress(Interrupted):
        merge_these(Watched(store, reads_until(one), merge_others), FOLDER, written[:8])
    assert read(store) == list(range(12))
    assert sum(part.rows for part in counted(store, FOLDER)) == 12
    assert sum(part.rows for part in counted(store, FOLDER)) == 12
    assert read(store) == list(range(12))


@pytest.mark.nightly
@pytest.mark.parametrize("after", range(1, 14))
def test_after_a_merge_that_died_every_row_counts_once_and_the_next_one_finishes_it(
    store: ObjectStore, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "LONGEST_MERGE", timedelta(seconds=-2))
    put_each(store, range(12))
    try:
        merge_parts(Watched(store, dies_after(after)), FOLDER)
    except Interrupted:
        assert after < 13
    assert read(store) == list(range(12))
    put(store, "later", 12)
    assert sum(part.rows for part in counted(store, FOLDER)) == 13
    put_each(store, range(13, 24))
    merge_parts(store, FOLDER)
    assert read(store) == list(range(24))
    assert len(parts_of(store, FOLDER)) == 1


@pytest.mark.nightly
@pytest.mark.parametrize("after", range(1, 6))
def test_what_a_merge_that_died_has_replaced_does_not_come_back_when_its_part_is_merged(
    store: ObjectStore, after: int
) -> None:
    mine = put_each(store, range(4), "mine-")
    try:
        merge_these(Watched(store, dies_after(after)), FOLDER, mine)
    except Interrupted:
        assert after < 5
    for last in (12, 24, 36):
        put_each(store, range(max(4, last - 12), last), "other-")
        merge_parts(store, FOLDER)
        assert read(store) == list(range(last))


@pytest.mark.nightly
def test_merged_parts_are_no_larger_than_a_task_can_hold(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "LARGE_ROWS", 50)
    for number in range(40):
        put(store, f"{number:02d}", *range(10 * number, 10 * number + 10))
    merge_parts(store, FOLDER)
    assert sorted(part.rows for part in counted(store, FOLDER)) == [50] * 8
    monkeypatch.setattr(parts, "LARGE_BYTES", 1)
    before = {put(store, "more", 400), *parts_of(store, FOLDER)}
    merge_parts(store, FOLDER)
    assert {*parts_of(store, FOLDER)} == before
    assert read(store) == list(range(401))


@pytest.mark.nightly
def test_a_merged_part_is_listed_behind_those_that_it_replaces(store: ObjectStore) -> None:
    listed: list[str] = []
    for round_ in range(3):
        for number in range(FEW + 1):
            put(store, random.Random(f"{round_} {number}").randbytes(16).hex(), number)
        listed = parts_of(store, FOLDER)
        merge_parts(store, FOLDER)
        [merged] = parts_of(store, FOLDER)
        assert merged > max(listed)


def test_no_call_counts_twice(store: ObjectStore) -> None:
    table, moment = UsageTable(store, ""), Moment(kind="step", epoch=1, step=1)
    equal = ModelCall(role="target", stage="rollout", model="m", http_status=200, attempts=1, started=1.0, seconds=0.5)
    # Parts have the names of their contents.
    parts = [[equal.model_copy(update={"seconds": float(number)})] * 2 for number in range(10)]
    written = [table.append("searchqa", "run", part, moment) for part in parts]
    counts: list[int] = []
    watched = Watched(store, lambda: counts.append(len(table.read("searchqa", "run"))))
    UsageTable(watched, "").merge_written("searchqa", "run", written[:2])
    UsageTable(watched, "").merge_written("searchqa", "run", written[2:3])
    UsageTable(watched, "").merge("searchqa", "run")
    assert set(counts) == {20}
    assert len(table.read("searchqa", "run")) == 20
