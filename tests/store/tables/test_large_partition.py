"""Memory of those who read 100,000 rollouts in the parts that chunks of 400 leave, and of those who merge them."""

import multiprocessing
import random
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from skillopt_airflow.core.values.types import ItemRef
from skillopt_airflow.store import keys
from skillopt_airflow.store.tables.parquet import RolloutRow, parts_of, rollouts_to_table, to_parquet
from skillopt_airflow.store.tables.retention import CleanupCounts, compact
from skillopt_airflow.store.tables.rollout_table import KnownParts, RolloutTable
from tests.store.stored_rollouts import BEGINNING, Try, rollout_key
from tests.training.local_store import LocalStore

CHUNKS, ROWS = 250, 400
MEBIBYTE = 1024 * 1024


def row(number: int) -> RolloutRow:
    one, key = Try(str(number), said=random.Random(number).randbytes(500).hex()), rollout_key()
    origin = (one.run, one.ref.fingerprint, key.skill_sha256, key.settings_sha256, key.image, BEGINNING)
    return RolloutRow(*origin, one.rollout)


def peak(merged: bool) -> float:
    """Read everything; return the process's peak in MiB, with the stored objects, which are in memory, too."""
    store, key = LocalStore(), rollout_key()
    chunk = rollouts_to_table(row(number) for number in range(ROWS))
    refs: list[ItemRef] = []
    for number in range(CHUNKS):
        found = [Try(str(number * ROWS + place)).ref for place in range(ROWS)]
        columns = {"item_id": [ref.id for ref in found], "item_fingerprint": [ref.fingerprint for ref in found]}
        for name, values in columns.items():
            chunk = chunk.set_column(chunk.schema.get_field_index(name), chunk.schema.field(name), pa.array(values))
        store.put_bytes(keys.part(key.partition(""), f"{number:03d}"), to_parquet(chunk))
        refs += found
    if merged:
        later = datetime.now(UTC) + timedelta(days=1)
        assert compact(store, key.partition(""), None, later) == CleanupCounts(CHUNKS, 10, CHUNKS * ROWS, 0)
    assert len(parts_of(store, "")) == (10 if merged else CHUNKS)
    table = RolloutTable(store, "")
    known: KnownParts = {}
    for _ in range(2):
        assert len(table.results(key, "run", refs, known=known)) == len(refs)
    known.clear()
    assert len(table.unparsed(key, "run", refs)) == len(refs)
    assert len(table.effort(key, refs)) == len(refs)
    # Unlike ru_maxrss, it has nothing of the process that started this one.
    [peak] = re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(peak) * 1024 / MEBIBYTE


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("merged", [False, True])
def test_readers_of_100_000_rollouts_stay_within_a_gibibyte(merged: bool) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(peak, (merged,)) < 1024
