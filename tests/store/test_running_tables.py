import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from skillopt_airflow.core.timeline import Moment
from skillopt_airflow.core.types import Item, ModelCall, Rollout, Score, Status, Trajectory
from skillopt_airflow.store.parquet import from_parquet, to_parquet
from skillopt_airflow.store.rollout_table import RolloutTable, UsageTable
from skillopt_airflow.store.running_tables import MOST_NEW_PARTS, CallKind, CallSums, RunningRollouts, RunningUsage
from tests.store.stored_rollouts import rollout_key
from tests.training.local_store import LocalStore

STEP = Moment(kind="step", epoch=1, step=1)
KEY = rollout_key()
PARTITION = KEY.partition("")


class Reads(LocalStore):
    """A store that counts what is read."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()
        self.before_read = lambda key: self.counts.update([key])


def call(role: Any, tokens: int, batch: bool = False) -> ModelCall:
    return ModelCall(
        role=role,
        stage="s",
        model="m",
        http_status=200,
        attempts=1,
        prompt_tokens=tokens,
        completion_tokens=1,
        started=1.0,
        seconds=1.0,
        batch=batch,
    )


def rolled_out(store: LocalStore, run: str, items: Sequence[str], status: Status = Status.OK) -> None:
    score = Score(hard=1.0, soft=1.0, feedback="") if status.scored else None
    rows = [
        (
            Item(id=name, public={}, reference={}),
            Rollout(trajectory=Trajectory(item_id=name, status=status), score=score),
        )
        for name in items
    ]
    RolloutTable(store, "").append(KEY, run, rows)


@pytest.fixture
def store() -> Reads:
    return Reads()


def test_calls_are_summed_by_what_they_cost(store: Reads) -> None:
    table, watched = UsageTable(store, ""), RunningUsage(store, "", "b", "r")
    assert watched.sums() == {}
    table.append("b", "r", [call("target", 5), call("optimizer", 7), call("target", 6)], STEP)
    [first] = store.list_keys("")
    # Parts of a former version count as single calls.
    store.put_bytes(first, to_parquet(from_parquet(store.get_bytes(first)).drop_columns(["batch", "moment"])))
    table.append("b", "other", [call("target", 1000)], STEP)
    table.append("b", "r", [call("target", 8), call("target", 100, batch=True)], STEP)
    assert watched.sums() == {
        CallKind("target", batch=False): CallSums(3, 19, 3),
        CallKind("target", batch=True): CallSums(1, 100, 1),
        CallKind("optimizer", batch=False): CallSums(1, 7, 1),
    }


def test_each_part_is_read_once_and_closed_ones_count_once(store: Reads) -> None:
    table, watched = UsageTable(store, ""), RunningUsage(store, "", "b", "r")
    for number in range(12):
        table.append("b", "r", [call("target", number)], STEP, "w")
        read = sum(range(number + 1))
        assert watched.sums() == {CallKind("target", batch=False): CallSums(number + 1, read, number + 1)}
    assert set(store.counts.values()) == {1}
    table.close("b", "r", "w")
    store.counts.clear()
    for _ in range(2):
        assert watched.sums()[CallKind("target", batch=False)] == CallSums(12, 66, 12)
    assert list(store.counts.values()) == [1]


def test_an_item_has_ended_whatever_became_of_it(store: Reads) -> None:
    watched = RunningRollouts(store, PARTITION, "r")
    assert watched.ended() == frozenset()
    rolled_out(store, "r", ["a", "b"])
    rolled_out(store, "r", ["c", "b"], Status.TIMEOUT)
    rolled_out(store, "other", ["d"])
    assert watched.ended() == {"a", "b", "c"}
    rolled_out(store, "r", ["d"])
    store.counts.clear()
    assert watched.ended() == {"a", "b", "c", "d"}
    assert len(store.counts) == 1


def test_too_many_new_parts_are_not_looked_into(store: Reads) -> None:
    watched, late = (RunningRollouts(store, PARTITION, "r") for _ in range(2))
    for number in range(MOST_NEW_PARTS + 1):
        assert watched.ended() == {str(one) for one in range(number)}
        rolled_out(store, "r", [str(number)])
    store.counts.clear()
    assert late.ended() is None
    assert not store.counts
    found = watched.ended()
    assert len(found) == MOST_NEW_PARTS + 1


def test_nothing_of_what_was_said_is_read() -> None:
    store = LocalStore()
    rolled_out(store, "r", ["a"])
    [part] = store.list_keys(PARTITION)
    rows = from_parquet(store.get_bytes(part))
    noise = pa.array([random.Random(number).randbytes(1000).hex() for number in range(500)])
    place = rows.schema.get_field_index("answer")
    many = pa.concat_tables([rows] * len(noise)).set_column(place, rows.schema.field("answer"), noise)
    store.put_bytes(part, to_parquet(many))
    assert RunningRollouts(store, PARTITION, "r").ended() == {"a"}
    assert store.fetched < len(store.objects[part]) / 4
