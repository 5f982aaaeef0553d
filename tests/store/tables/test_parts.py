from collections.abc import Callable

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.types import ModelCall
from skillopt_airflow.store import keys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.tables import parquet
from skillopt_airflow.store.tables.parquet import close_parts, parts_of, read_parts, to_parquet
from skillopt_airflow.store.tables.rollout_table import UsageTable

FOLDER = "table/"


def put(store: ObjectStore, name: str, *numbers: int, writer: str = "") -> str:
    key = keys.part(FOLDER, name, writer)
    store.put_bytes(key, to_parquet(pa.table({"number": numbers})))
    return key


def numbers(file: pq.ParquetFile) -> list[int]:
    found: list[int] = file.read()["number"].to_pylist()
    return found


def read(store: ObjectStore) -> list[int]:
    return sorted(number for part in read_parts(store, FOLDER, numbers).values() for number in part)


class Interrupted(Exception):
    """The process that closes its parts is gone."""


class Watched(ObjectStore):
    """A store in which something happens before every write and removal."""

    def __init__(self, store: ObjectStore, happens: Callable[[], object]) -> None:
        super().__init__(store._client, store.bucket)
        self._happens = happens

    def put_bytes(self, key: str, body: bytes) -> None:
        self._happens()
        super().put_bytes(key, body)

    def delete(self, key: str) -> None:
        self._happens()
        super().delete(key)


def test_what_is_known_of_a_part_is_not_read_again(store: ObjectStore) -> None:
    known: dict[str, list[int]] = {}
    asked: list[int] = []

    def read_once(file: pq.ParquetFile) -> list[int]:
        asked.extend(numbers(file))
        return numbers(file)

    for number in range(2):
        put(store, str(number), number, writer="w")
    other = put(store, "other", 2)
    for _ in range(2):
        assert sorted(read_parts(store, FOLDER, read_once, known).values()) == [[0], [1], [2]]
    close_parts(store, FOLDER, "w")
    closed = keys.part(FOLDER, "w")
    assert read_parts(store, FOLDER, read_once, known) == {closed: [0, 1], other: [2]}
    assert sorted(asked) == [0, 0, 1, 1, 2]
    assert known.keys() == {closed, other}


def test_a_writer_closes_its_own_parts_alone(store: ObjectStore) -> None:
    for number in range(3):
        put(store, str(number), number, writer="w")
    others = [put(store, "0", 3, writer="x"), put(store, "1", 4, writer="x"), put(store, "w", 5, writer="y")]
    close_parts(store, FOLDER, "w")
    assert store.list_keys(FOLDER) == sorted([keys.part(FOLDER, "w"), *others])
    assert read(store) == list(range(6))
    # One part, or none, has nothing to be put together with.
    for writer in ("y", "z"):
        close_parts(store, FOLDER, writer)
    assert store.list_keys(FOLDER) == sorted([keys.part(FOLDER, "w"), *others])


def test_who_reads_at_any_moment_of_a_closing_finds_every_row_once(store: ObjectStore) -> None:
    found: list[list[int]] = []
    for number in range(12):
        put(store, f"{number:02d}", number, writer="w")
    close_parts(Watched(store, lambda: found.append(read(store))), FOLDER, "w")
    assert found == [list(range(12))] * 13
    assert read(store) == list(range(12))


@pytest.mark.parametrize("writes", range(5))
def test_every_row_counts_once_after_a_closing_that_died(store: ObjectStore, writes: int) -> None:
    left = [writes]

    def dies() -> None:
        left[0] -= 1
        if left[0] < 0:
            raise Interrupted

    for number in range(4):
        put(store, f"{number:02d}", number, writer="w")
    with pytest.raises(Interrupted):
        close_parts(Watched(store, dies), FOLDER, "w")
    assert read(store) == list(range(4))
    assert len(parts_of(store, FOLDER)) == (1 if writes else 4)


def test_a_listing_has_the_closing_part_after_those_that_it_has_the_rows_of(store: ObjectStore) -> None:
    small = [put(store, name, 0, writer="w") for name in ("00", "ff", "zz")]
    assert keys.part(FOLDER, "w") > max(small)
    assert {keys.closing_part(key) for key in small} == {keys.part(FOLDER, "w")}
    assert keys.closing_part(keys.part(FOLDER, "w")) == ""


def test_a_closed_part_has_row_groups_of_a_limited_size(store: ObjectStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "GROUP_BYTES", 800)
    for number in range(20):
        put(store, f"{number:02d}", *range(10 * number, 10 * number + 10), writer="w")
    close_parts(store, FOLDER, "w")
    [groups] = read_parts(store, FOLDER, lambda file: [file.metadata.row_group(n).num_rows for n in range(2)]).values()
    assert groups == [100, 100]
    assert read(store) == list(range(200))


def test_no_call_counts_twice(store: ObjectStore) -> None:
    moment = Moment(kind="step", epoch=1, step=1)
    equal = ModelCall(role="target", stage="rollout", model="m", http_status=200, attempts=1, started=1.0, seconds=0.5)
    counts: list[int] = []
    table = UsageTable(Watched(store, lambda: counts.append(len(UsageTable(store, "").read("searchqa", "run")))), "")
    parts = [[equal.model_copy(update={"seconds": float(number)})] * 2 for number in range(10)]
    for part in (*parts, parts[-1]):
        # The last write had no answer, and is made again.
        table.append("searchqa", "run", part, moment, writer="w")
    counts.clear()
    table.close("searchqa", "run", "w")
    assert set(counts) == {20}
    assert len(table.read("searchqa", "run")) == 20
