import math
import time
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow.fs
import pytest

from skillopt_airflow.core.errors import StoreUnavailable
from skillopt_airflow.core.run.timeline import Moment
from skillopt_airflow.core.values.types import (
    Item,
    ItemRef,
    Message,
    ModelCall,
    Rollout,
    Score,
    Split,
    Status,
    Trajectory,
)
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.tables import parquet as parts
from skillopt_airflow.store.tables.rollout_table import (
    KnownParts,
    Partition,
    RolloutPartitions,
    RolloutTable,
    UsageTable,
)
from tests.store.stored_rollouts import OTHER, SKILL, Try, put, rollout_key
from tests.training.local_store import LocalStore

KEY = rollout_key()
ITEMS = [Item(id=name, public={"question": name}, reference={"answers": [name]}) for name in "abcd"]
SEED, STEP = Moment(kind="seed", epoch=0, step=0), Moment(kind="step", epoch=1, step=1)


@pytest.fixture
def table(store: ObjectStore) -> RolloutTable:
    return RolloutTable(store, "team/")


def ok(item: Item, answer: str = "x", hard: float = 1.0) -> tuple[Item, Rollout]:
    messages = (Message(role="system", content="skill"), Message(role="assistant", content=answer))
    trajectory = Trajectory(
        item_id=item.id, status=Status.OK, answer=answer, messages=messages, calls=1, started=1763696507.25, seconds=0.5
    )
    return item, Rollout(trajectory=trajectory, score=Score(hard=hard, soft=hard, feedback="f"))


def failed(item: Item, status: Status = Status.TIMEOUT) -> tuple[Item, Rollout]:
    return item, Rollout(trajectory=Trajectory(item_id=item.id, status=status, error=status.value), score=None)


def test_what_was_stored_is_read_by_any_run_and_the_first_of_duplicates_wins(
    table: RolloutTable, store: ObjectStore
) -> None:
    table.append(KEY, "run", [])
    assert store.list_keys("") == []
    assert table.read(KEY, ITEMS) == table.errors(KEY, "run", ITEMS) == {}
    table.append(KEY, "run-1", [ok(ITEMS[0]), ok(ITEMS[1])])
    table.append(KEY, "run-2", [ok(ITEMS[2], hard=0.0), ok(ITEMS[0], "second")])
    stored = [ok(ITEMS[0]), ok(ITEMS[1]), ok(ITEMS[2], hard=0.0)]
    assert table.read(KEY, ITEMS) == {item.id: rollout for item, rollout in stored}
    assert set(table.read(KEY, ITEMS[1:])) == {"b", "c"}
    changed = ITEMS[0].model_copy(update={"reference": {"answers": ["new"]}})
    assert table.read(KEY, [changed]) == {}


def test_results_are_scores_of_any_run_and_the_last_failures_of_this_one(table: RolloutTable) -> None:
    table.append(KEY, "run", [failed(ITEMS[0]), failed(ITEMS[1]), ok(ITEMS[2], hard=0.5)])
    table.append(KEY, "other", [failed(ITEMS[0], Status.REFUSED), ok(ITEMS[1]), ok(ITEMS[2]), failed(ITEMS[3])])
    table.append(KEY, "run", [failed(ITEMS[0], Status.MODEL_ERROR)])
    errors, scored = table.errors(KEY, "run", ITEMS), table.read(KEY, ITEMS)
    assert {name: one.trajectory.status for name, one in errors.items()} == {
        "a": Status.MODEL_ERROR,
        "b": Status.TIMEOUT,
    }
    results = table.results(KEY, "run", ITEMS)
    assert results == {name: rollout.result for name, rollout in (errors | scored).items()}
    assert {name: (one.status, one.hard) for name, one in results.items()} == {
        "a": (Status.MODEL_ERROR, None),
        "b": (Status.OK, 1.0),
        "c": (Status.OK, 0.5),
    }
    changed = [ItemRef(item.id, "of another content") for item in ITEMS]
    assert table.results(KEY, "run", changed) == {}


def test_of_items_that_a_run_has_alone_no_other_run_counts(table: RolloutTable) -> None:
    for number in range(3):
        table.append(KEY, f"run-{number}", [ok(ITEMS[number]), failed(ITEMS[3])])
    assert table.results(KEY, "run-1", ITEMS, own=True).keys() == {"b", "d"}
    assert [(row["run"], row["item_id"]) for row in table.unparsed(KEY, "run-1", ITEMS, own=True)] == [
        ("run-1", "b"),
        ("run-1", "d"),
    ]


def test_who_looks_again_reads_what_is_new(
    table: RolloutTable, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: KnownParts = {}
    opened: list[str] = []
    reading = parts.open_parquet
    monkeypatch.setattr(parts, "open_parquet", lambda store, key: opened.append(key) or reading(store, key))
    table.append(KEY, "run", [failed(ITEMS[0])])
    table.append(KEY, "other", [ok(ITEMS[1])])
    assert set(table.results(KEY, "run", ITEMS, known=known)) == {"a", "b"}
    table.append(KEY, "run", [ok(ITEMS[0], hard=0.0)])
    found = table.results(KEY, "run", ITEMS, known=known)
    assert sorted(opened) == store.list_keys("team/trajectories/")
    assert found == table.results(KEY, "run", ITEMS)
    assert found["a"].hard == 0.0


def test_a_cut_answer_is_reused_like_a_whole_one(table: RolloutTable) -> None:
    item, whole = ok(ITEMS[0])
    cut = whole.model_copy(update={"trajectory": whole.trajectory.model_copy(update={"status": Status.TRUNCATED})})
    table.append(KEY, "run", [(item, cut)])
    assert table.read(KEY, ITEMS) == {"a": cut}
    assert table.errors(KEY, "run", ITEMS) == {}
    assert [row["status"] for row in table.unparsed(KEY, "other", ITEMS)] == ["truncated"]


def test_every_try_of_a_run_is_told_in_order(table: RolloutTable) -> None:
    table.append(KEY, "run", [failed(ITEMS[0], Status.MODEL_ERROR)])
    table.append(KEY, "run", [ok(ITEMS[0]), failed(ITEMS[1])])
    table.append(KEY, "other", [ok(ITEMS[1])])
    tries = [(one.item_id, one.status, one.error) for one in table.carried_out(KEY, "run")]
    errors = [one.trajectory.error for _, one in (failed(ITEMS[0], Status.MODEL_ERROR), failed(ITEMS[1]))]
    assert tries == [("a", Status.MODEL_ERROR, errors[0]), ("a", Status.OK, ""), ("b", Status.TIMEOUT, errors[1])]


def test_the_effort_is_that_of_the_rollouts_that_count(table: RolloutTable) -> None:
    def took(item: Item, *effort: int) -> tuple[Item, Rollout]:
        _, rollout = ok(item)
        counts = dict(zip(("calls", "prompt_tokens", "completion_tokens"), effort, strict=True))
        return item, rollout.model_copy(update={"trajectory": rollout.trajectory.model_copy(update=counts)})

    table.append(KEY, "run-1", [took(ITEMS[0], 1, 10, 2), failed(ITEMS[1])])
    table.append(KEY, "run-2", [took(ITEMS[0], 9, 90, 9), took(ITEMS[1], 3, 30, 4), took(ITEMS[3], 5, 50, 6)])
    assert table.effort(KEY, ITEMS[:3]) == [(1, 10, 2), (3, 30, 4)]
    assert table.effort(KEY.model_copy(update={"sample": 1}), ITEMS) == []


@pytest.mark.parametrize(
    "other",
    [
        # Of the same partition.
        {"skill_sha256": "a" * 12 + "0" * 52},
        {"image": "sha256:2"},
        {"sample": 1},
        {"split": Split.TEST},
        {"target": "openai-chat:org_model"},
        {"harness": "tools"},
        {"benchmark": "other"},
    ],
)
def test_another_key_is_another_rollout(table: RolloutTable, other: dict[str, object]) -> None:
    table.append(KEY, "run", [ok(ITEMS[0]), failed(ITEMS[1])])
    other_key = KEY.model_copy(update=other)
    assert table.read(other_key, ITEMS) == {}
    assert table.errors(other_key, "run", ITEMS) == {}


def call(started: float) -> ModelCall:
    return ModelCall(
        role="target", stage="rollout", model="m", http_status=200, attempts=1, started=started, seconds=0.5
    )


def test_pandas_reads_the_table_from_the_store_and_duckdb_both(
    table: RolloutTable, store: ObjectStore, s3_endpoint: str, tmp_path: Path
) -> None:
    table.append(KEY, "run", [ok(ITEMS[0]), failed(ITEMS[1])])
    table.append(KEY.model_copy(update={"sample": 1, "skill_sha256": "1" * 64}), "run", [ok(ITEMS[2])])
    UsageTable(store, "team/").append("searchqa", "run", [call(1.5)], STEP)
    filesystem = pyarrow.fs.S3FileSystem(
        access_key="test", secret_key="test", endpoint_override=s3_endpoint, region="us-east-1"
    )
    frame = pd.read_parquet(f"{store.bucket}/team/trajectories", filesystem=filesystem).set_index("item_id")
    assert frame["target"].astype(str).unique().tolist() == ["openai-chat:org/model"]
    assert frame["hard"].to_dict() == pytest.approx({"a": 1.0, "b": float("nan"), "c": 1.0}, nan_ok=True)
    assert frame.loc["a", "started"] == pd.Timestamp(1763696507.25, unit="s", tz="UTC")
    assert [message["role"] for message in frame.loc["a", "messages"]] == ["system", "assistant"]
    for key in store.list_keys("team/"):
        path = tmp_path / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.get_bytes(key))
    with duckdb.connect() as connection:
        rollouts = connection.execute(
            "select item_id, target, split, sample, status, hard, messages[2].content, year(started) "
            "from read_parquet(?, hive_partitioning = true) order by item_id",
            [f"{tmp_path}/team/trajectories/**/*.parquet"],
        ).fetchall()
        calls = connection.execute(
            "select benchmark, run, step, model from read_parquet(?, hive_partitioning = true)",
            [f"{tmp_path}/team/usage/**/*.parquet"],
        ).fetchall()
    assert rollouts == [
        ("a", "openai-chat:org/model", "val", 0, "ok", 1.0, "x", 2025),
        ("b", "openai-chat:org/model", "val", 0, "timeout", None, None, None),
        ("c", "openai-chat:org/model", "val", 1, "ok", 1.0, "x", 2025),
    ]
    assert calls == [("searchqa", "run", 1, "m")]


def test_usage_of_a_run_comes_back_in_order(store: ObjectStore) -> None:
    usage = UsageTable(store, "")
    usage.append("searchqa", "run", [call(3.0), call(1.0)], STEP)
    usage.append("searchqa", "run", [call(2.0)], SEED)
    usage.append("searchqa", "other", [call(2.5)], SEED)
    usage.append("searchqa", "run", [], STEP)
    read = [(row.step, row.moment, row.call.started) for row in usage.read("searchqa", "run")]
    assert read == [(1, "steps/step_0001", 1.0), (0, "steps/step_0000", 2.0), (1, "steps/step_0001", 3.0)]
    assert sorted(row.call.started for row in usage.rows("searchqa", "run")) == [1.0, 2.0, 3.0]
    assert usage.read("searchqa", "never") == list(usage.rows("searchqa", "never")) == []


def test_unparsed_are_all_rows_of_a_run_and_what_others_have_scored(table: RolloutTable, store: ObjectStore) -> None:
    elsewhere = Item(id="z", public={}, reference={})
    table.append(KEY, "run", [failed(ITEMS[0]), ok(ITEMS[1]), ok(ITEMS[1], hard=0.0)])
    table.append(KEY, "other", [ok(ITEMS[0]), ok(ITEMS[1]), failed(ITEMS[2]), ok(elsewhere)])
    table.append(KEY, "run", [ok(elsewhere)])
    table.append(KEY.model_copy(update={"image": "sha256:2"}), "run", [ok(ITEMS[3])])
    # As while parts are merged.
    for key in store.list_keys("team/trajectories/"):
        store.put_bytes(key.replace("part-", "part-again-"), store.get_bytes(key))
    rows = [(row["run"], row["item_id"], row["hard"]) for row in table.unparsed(KEY, "run", ITEMS)]
    assert set(rows) == {
        ("run", "a", None),
        ("run", "b", 1.0),
        ("run", "b", 0.0),
        ("other", "a", 1.0),
        ("run", "z", 1.0),
    }
    # Both rows of an item that one write has twice, and each row once.
    assert rows.count(("run", "b", 1.0)) == rows.count(("other", "a", 1.0)) == 1, rows


class Merging(ObjectStore):
    """A store in which, for so many seconds, a part goes between a listing and the first read."""

    def __init__(self, store: ObjectStore, seconds: float) -> None:
        super().__init__(store._client, store.bucket)
        self._until = time.monotonic() + seconds

    def list_keys(self, prefix: str) -> list[str]:
        gone = [f"{prefix}part-gone.parquet"] if time.monotonic() < self._until else []
        return gone + super().list_keys(prefix)


def test_who_reads_while_parts_go_one_by_one_waits_for_the_rest(table: RolloutTable, store: ObjectStore) -> None:
    table.append(KEY, "run", [ok(ITEMS[0])])
    assert set(RolloutTable(Merging(store, 0.5), "team/").read(KEY, ITEMS)) == {"a"}


def test_parts_that_never_rest_are_a_reason_to_try_the_task_again(
    table: RolloutTable, store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "PATIENCE", 0.2)
    table.append(KEY, "run", [ok(ITEMS[0])])
    with pytest.raises(StoreUnavailable, match="change faster than they can be read"):
        RolloutTable(Merging(store, math.inf), "team/").read(KEY, ITEMS)


PLACE = Partition("searchqa", "openai-chat:org/model", "chat", Split.VAL, SKILL[:12], 0)
CODEX = PLACE._replace(harness="codex")
ELSEWHERE = PLACE._replace(target="a:b")


@pytest.fixture
def partitions() -> RolloutPartitions:
    store = LocalStore()
    others = [rollout_key().model_copy(update=one) for one in ({"harness": "codex"}, {"target": "a:b"})]
    for key in (rollout_key(), rollout_key(sample=1), rollout_key(OTHER), *others):
        put(store, key, [[Try("a")], [Try("b")]])
    return RolloutPartitions(store, "")


def test_what_a_benchmark_and_a_skill_have_rollouts_of(partitions: RolloutPartitions) -> None:
    own = [PLACE, PLACE._replace(sample=1)]
    assert partitions.of_benchmark("searchqa") == [ELSEWHERE, *own, PLACE._replace(skill=OTHER[:12]), CODEX]
    assert partitions.of_benchmark("searchqa2") == []
    assert partitions.of_skill("searchqa", SKILL[:12], PLACE.target) == [*own, CODEX]
    assert partitions.of_skill("searchqa", SKILL[:12]) == [ELSEWHERE, *own, CODEX]
    for skill, target in ((OTHER[:12], "a:b"), ("0" * 12, ""), (SKILL[:12], "no such model")):
        assert partitions.of_skill("searchqa", skill, target) == []
    # Which skills ran on the same.
    assert partitions.comparable_skills(PLACE) == sorted([SKILL[:12], OTHER[:12]])
    assert partitions.comparable_skills(CODEX) == [SKILL[:12]]
