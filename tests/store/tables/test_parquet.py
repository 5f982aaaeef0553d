import random
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from skillopt_airflow.core.errors import ObjectMissing
from skillopt_airflow.core.values.types import Grade, Message, ModelCall, Rollout, Score, Status, Trajectory
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.tables import parquet as tables
from skillopt_airflow.store.tables.parquet import RolloutRow, UsageRow, open_parquet, to_parquet
from tests.training.local_store import LocalStore

COUNTS = st.integers(0, 10**12)
SECONDS = st.floats(0, 1e6)
STARTED = st.integers(0, 4_000_000_000_000_000).map(lambda micro: micro / 1_000_000)
UNIT = st.floats(0, 1)
MESSAGES = st.lists(
    st.builds(Message, role=st.sampled_from(["system", "user", "assistant", "tool"]), content=st.text()), max_size=4
).map(tuple)


@st.composite
def rollouts(draw: st.DrawFn) -> Rollout:
    status = draw(st.sampled_from(list(Status)))
    trajectory = draw(
        st.builds(
            Trajectory,
            item_id=st.text(min_size=1),
            status=st.just(status),
            error=st.text(),
            messages=MESSAGES,
            answer=st.text(),
            calls=COUNTS,
            prompt_tokens=COUNTS,
            completion_tokens=COUNTS,
            started=STARTED,
            seconds=SECONDS,
        )
    )
    graded = st.none() | st.builds(Grade, grade=st.just("correct"), quote=st.text(), reason=st.text())
    score = draw(st.builds(Score, hard=UNIT, soft=UNIT, feedback=st.text(), grade=graded)) if status.scored else None
    return Rollout(trajectory=trajectory, score=score)


ROWS = st.builds(
    RolloutRow,
    run=st.text(),
    item_fingerprint=st.text(),
    skill_sha256=st.text(),
    settings_sha256=st.text(),
    image=st.text(),
    stored=st.datetimes(datetime(1970, 1, 1), datetime(2100, 1, 1), timezones=st.just(UTC)),
    rollout=rollouts(),
)
CALLS = st.builds(
    ModelCall,
    role=st.sampled_from(["target", "optimizer", "judge"]),
    stage=st.text(),
    model=st.text(),
    http_status=st.integers(0, 599),
    attempts=st.integers(1, 9),
    prompt_tokens=COUNTS,
    completion_tokens=COUNTS,
    started=STARTED,
    seconds=SECONDS,
)


@given(st.lists(ROWS, max_size=5))
def test_rollouts_come_back_from_parquet(rows: list[RolloutRow]) -> None:
    table = tables.from_parquet(tables.to_parquet(tables.rollouts_to_table(rows)))
    assert table.schema.equals(tables.TRAJECTORIES)
    assert tables.rollouts_from_table(table) == rows


@given(st.lists(st.builds(UsageRow, step=st.integers(0, 999), moment=st.text(), call=CALLS), max_size=5))
def test_calls_come_back_from_parquet(rows: list[UsageRow]) -> None:
    table = tables.from_parquet(tables.to_parquet(tables.usage_to_table(rows)))
    assert table.schema.equals(tables.USAGE)
    assert tables.usage_from_table(table) == rows


def test_a_large_table_has_row_groups_of_few_megabytes() -> None:
    table = pa.table({"number": pa.arange(0, 1000), "text": ["x" * 30_000] * 1000})
    metadata = pq.ParquetFile(pa.BufferReader(tables.to_parquet(table))).metadata
    assert [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)] == [559, 441]
    assert metadata.row_group(0).column(0).compression == "ZSTD"
    assert tables.from_parquet(tables.to_parquet(table)).equals(table)


COUNT = 3000
TEXTS = [random.Random(row).randbytes(100).hex() for row in range(COUNT)]
TABLE = pa.table(
    {"id": [str(row) for row in range(COUNT)], "text": TEXTS, "score": [row / COUNT for row in range(COUNT)]}
)


@pytest.mark.parametrize("tail", [1000, 300_000, 10_000_000])
def test_what_is_read_is_what_was_stored(store: ObjectStore, monkeypatch: pytest.MonkeyPatch, tail: int) -> None:
    monkeypatch.setattr(tables, "TAIL", tail)
    store.put_bytes("key", to_parquet(TABLE))
    assert open_parquet(store, "key").read().equals(TABLE)
    assert open_parquet(store, "key").read(columns=["id", "score"]).equals(TABLE.drop_columns(["text"]))


def test_columns_that_are_not_read_are_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "TAIL", 1000)
    store, body = LocalStore(), to_parquet(TABLE)
    store.put_bytes("key", body)
    open_parquet(store, "key").read(columns=["id", "score"])
    assert 0 < store.fetched < len(body) / 3


def test_an_object_that_is_not_there_or_goes_meanwhile_is_missing(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "TAIL", 1000)
    with pytest.raises(ObjectMissing):
        open_parquet(store, "key")
    store.put_bytes("key", to_parquet(TABLE))
    file = open_parquet(store, "key")
    store.delete("key")
    with pytest.raises(ObjectMissing):
        file.read(columns=["id"])
