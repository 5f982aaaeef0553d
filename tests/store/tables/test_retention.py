import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from skillopt_airflow.core.errors import Conflict, ObjectMissing
from skillopt_airflow.core.values.types import Item, Rollout, Score, Status, Trajectory
from skillopt_airflow.store.artifacts import ArtifactStore
from skillopt_airflow.store.data.corpora import SourceCorpus, StoredCorpus, store_corpus
from skillopt_airflow.store.keys import CorpusKeys, grades_of, parts_of_writer, searches_of
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.tables import retention
from skillopt_airflow.store.tables.parquet import from_parquet, parts_of, to_parquet
from skillopt_airflow.store.tables.retention import CleanupCounts, compact, drop_corpora, drop_old, partitions
from skillopt_airflow.store.tables.rollout_table import RolloutTable
from tests.store.stored_rollouts import rollout_key
from tests.store.test_artifacts import KEYS, provenance, publish

KEY = rollout_key()
ITEMS = [Item(id=f"i-{n}", public={}, reference={}) for n in range(6)]
FUTURE = datetime.now(UTC) + timedelta(days=1)


def rollout(item: Item, hard: float = 1.0) -> Rollout:
    return Rollout(trajectory=Trajectory(item_id=item.id, status=Status.OK), score=Score(hard=hard, soft=hard))


@pytest.fixture
def table(store: ObjectStore) -> RolloutTable:
    table = RolloutTable(store, "team/")
    for item in ITEMS:
        table.append(KEY, "run", [(item, rollout(item))])
    return table


def test_many_parts_become_one_and_read_the_same(store: ObjectStore, table: RolloutTable) -> None:
    table.append(KEY, "another-run", [(ITEMS[0], rollout(ITEMS[0], hard=0.0))])
    before = table.read(KEY, ITEMS)
    assert before["i-0"].score == rollout(ITEMS[0]).score
    [partition] = partitions(store, "team/", "searchqa")
    assert compact(store, partition, None, FUTURE) == CleanupCounts(7, 1, 7, 0)
    assert table.read(KEY, ITEMS) == before
    assert len(parts_of(store, partition)) == 1
    again = store.list_keys("")
    assert compact(store, partition, None, FUTURE) == CleanupCounts(1, 1, 7, 0)
    assert store.list_keys("") == again


def test_old_rows_go_and_new_ones_stay(store: ObjectStore, table: RolloutTable) -> None:
    [partition] = partitions(store, "team/", "searchqa")
    moment = datetime.now(UTC)
    table.append(KEY, "run-2", [(ITEMS[0], rollout(ITEMS[0], hard=0.0))])
    assert compact(store, partition, moment, FUTURE) == CleanupCounts(7, 1, 1, 6)
    assert set(table.read(KEY, ITEMS)) == {"i-0"}
    assert compact(store, partition, FUTURE, FUTURE) == CleanupCounts(1, 0, 0, 1)
    assert store.list_keys(partition) == []


def test_columns_of_another_version_stay(store: ObjectStore, table: RolloutTable) -> None:
    [partition] = partitions(store, "team/", "searchqa")
    for part in parts_of(store, partition)[:2]:
        rows = from_parquet(store.get_bytes(part))
        later = rows.append_column("reasoning_tokens", pa.array([7], pa.int64()))
        store.put_bytes(part, to_parquet(later.set_column(6, "status", pa.array(["of a later version"]))))
    assert compact(store, partition, None, FUTURE) == CleanupCounts(6, 2, 6, 0)
    tables = [from_parquet(store.get_bytes(part)) for part in parts_of(store, partition)]
    [kept] = [table.to_pylist() for table in tables if "reasoning_tokens" in table.column_names]
    assert [(row["status"], row["reasoning_tokens"]) for row in kept] == [("of a later version", 7)] * 2
    assert len(table.read(KEY, ITEMS)) == 4


def test_who_reads_while_parts_are_merged_misses_nothing(store: ObjectStore, table: RolloutTable) -> None:
    [partition] = partitions(store, "team/", "searchqa")

    class Merging(ObjectStore):
        """A store in which the parts are merged between a listing and the first read."""

        def list_keys(self, prefix: str) -> list[str]:
            found = super().list_keys(prefix)
            if len(found) > 1:
                compact(store, partition, None, FUTURE)
            return found

    assert set(RolloutTable(Merging(store._client, store.bucket), "team/").read(KEY, ITEMS)) == {i.id for i in ITEMS}


def test_parts_of_the_last_day_are_left_alone(store: ObjectStore, table: RolloutTable) -> None:
    [partition] = partitions(store, "team/", "searchqa")
    before = store.list_keys(partition)
    assert compact(store, partition, FUTURE, datetime.now(UTC) - timedelta(days=1)) == CleanupCounts()
    assert store.list_keys(partition) == before


def test_what_a_writer_that_died_has_closed_goes(store: ObjectStore, table: RolloutTable) -> None:
    [partition] = partitions(store, "team/", "searchqa")
    for item in ITEMS[:2]:
        table.append(KEY, "another-run", [(item, rollout(item, hard=0.0))], "w")
    small = store.list_keys(parts_of_writer(partition, "w"))
    bodies = [store.get_bytes(key) for key in small]
    table.close(KEY, "w")
    for key, body in zip(small, bodies, strict=True):
        store.put_bytes(key, body)
    assert compact(store, partition, None, FUTURE) == CleanupCounts(7, 1, 8, 0)
    assert len(store.list_keys(partition)) == 1


@pytest.mark.parametrize("writes", range(8))
def test_after_a_merge_that_died_items_count_once_and_the_next_one_finishes_it(
    store: ObjectStore, table: RolloutTable, writes: int
) -> None:
    [partition] = partitions(store, "team/", "searchqa")
    before = table.results(KEY, "run", ITEMS)

    class Dying(ObjectStore):
        left = writes

        def put_bytes(self, key: str, body: bytes) -> None:
            self._lives()
            super().put_bytes(key, body)

        def delete(self, key: str) -> None:
            self._lives()
            super().delete(key)

        def _lives(self) -> None:
            self.left -= 1
            if self.left < 0:
                raise InterruptedError

    with suppress(InterruptedError):
        compact(Dying(store._client, store.bucket), partition, None, FUTURE)
    for _ in range(2):
        assert table.results(KEY, "run", ITEMS) == before
        assert len(table.unparsed(KEY, "run", ITEMS)) == len(table.carried_out(KEY, "run")) == len(ITEMS)
        compact(store, partition, None, FUTURE)
    assert len(parts_of(store, partition)) == 1


def test_merged_parts_are_no_larger_than_a_task_can_hold(
    store: ObjectStore, table: RolloutTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    [partition] = partitions(store, "team/", "searchqa")
    monkeypatch.setattr(retention, "LARGE_BYTES", 1)
    assert compact(store, partition, None, FUTURE) == CleanupCounts(6, 6, 6, 0)
    monkeypatch.undo()
    monkeypatch.setattr(retention, "LARGE_ROWS", 4)
    assert compact(store, partition, None, FUTURE) == CleanupCounts(6, 2, 6, 0)
    assert set(table.read(KEY, ITEMS)) == {item.id for item in ITEMS}


@pytest.mark.parametrize("folder_of", [grades_of, searches_of])
def test_old_grades_and_searches_go_and_new_ones_and_those_of_other_benchmarks_stay(
    store: ObjectStore, folder_of: Callable[[str, str], str]
) -> None:
    mine, others = (f"{folder_of('team/', name)}2026-01-01/page-1.json" for name in ("sealqa", "sealqa2"))
    for key in (mine, others):
        store.put_text(key, "{}")
    assert drop_old(store, folder_of("team/", "sealqa"), datetime.now(UTC) - timedelta(days=1)) == 0
    assert drop_old(store, folder_of("team/", "sealqa"), FUTURE) == 1
    assert store.list_keys("team/") == [others]


@pytest.fixture
def source(tmp_path: Path) -> SourceCorpus:
    client: Any = None
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents" / "a.txt").write_text("alpha")
    return SourceCorpus("documents", tmp_path, client)


@pytest.mark.nightly
@pytest.mark.parametrize("prepared", [True, False])
def test_corpora_that_no_run_used_are_removed_whole(store: ObjectStore, source: SourceCorpus, prepared: bool) -> None:
    sha256 = store_corpus(store, "team/", source)
    keys = CorpusKeys("team/", sha256)
    store.put_bytes(CorpusKeys("team/", "f" * 64).archive(0), b"of a task that was killed")
    time.sleep(1.1)
    now = datetime.now(UTC)
    assert drop_corpora(store, "team/", now - timedelta(days=1)) == 0
    # The manifest is written anew whenever a run is prepared, and by the tasks that use the corpus.
    if prepared:
        store_corpus(store, "team/", source)
    else:
        StoredCorpus(store, "team/", sha256).keep()
    assert drop_corpora(store, "team/", now) == 1
    assert store.list_keys("team/corpora/") == [keys.archive(0), keys.manifest]
    assert drop_corpora(store, "team/", FUTURE) == 1
    assert store.list_keys("team/corpora/") == []
    with pytest.raises(ObjectMissing):
        StoredCorpus(store, "team/", sha256).keep()


def test_a_corpus_that_a_cleanup_has_half_removed_is_stored_anew(store: ObjectStore, source: SourceCorpus) -> None:
    keys = CorpusKeys("team/", store_corpus(store, "team/", source))
    store.delete(keys.archive(0))
    store_corpus(store, "team/", source)
    assert store.list_keys("team/corpora/") == [keys.archive(0), keys.manifest]


def test_versions_that_an_alias_ever_pointed_to_are_kept(store: ObjectStore) -> None:
    artifacts = ArtifactStore(store, KEYS)
    first = publish(artifacts, "one", provenance())
    second = publish(artifacts, "two", provenance())
    artifacts._write_version("v0003-0123456789ab", "three", provenance(), "")
    assert artifacts.drop_unused(datetime.now(UTC) - timedelta(days=1)) == []
    assert artifacts.drop_unused(FUTURE) == ["v0003-0123456789ab"]
    with pytest.raises(ObjectMissing):
        artifacts.read("v0003-0123456789ab")
    assert artifacts.list_versions() == [first.version, second.version]


@pytest.mark.parametrize("restored", [False, True])
def test_a_champion_stays_whose_alias_was_lost(store: ObjectStore, restored: bool) -> None:
    artifacts = ArtifactStore(store, KEYS)
    publish(artifacts, "one", provenance())
    backup = store.get_bytes(KEYS.champion)
    last = publish(artifacts, "two", provenance())
    if restored:
        store.put_bytes(KEYS.champion, backup)
    else:
        store.delete(KEYS.champion)
    assert artifacts.drop_unused(FUTURE) == []
    assert artifacts.read(last.version).skill == "two"


def test_an_old_version_that_is_published_while_others_are_removed_stays(store: ObjectStore) -> None:
    artifacts = ArtifactStore(store, KEYS)
    publish(artifacts, "one", provenance())
    with pytest.raises(Conflict):
        artifacts.publish("overtaken", provenance(), None)
    other = ArtifactStore(store, KEYS)

    class Overtaken(ArtifactStore):
        def _is_old(self, version: str, before: datetime) -> bool:
            publish(other, "overtaken", provenance())
            publish(other, "three", provenance("later"))
            return super()._is_old(version, before)

    assert Overtaken(store, KEYS).drop_unused(FUTURE) == []
    assert [artifacts.read(version).skill for version in artifacts.list_versions()] == ["one", "overtaken", "three"]
