"""The tables of a run that is watched while it goes on: each part is read once, and of it only what is counted."""

from collections import Counter
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from skillopt_airflow.core.budget import Role
from skillopt_airflow.store import keys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.parts import parts_of, read_parts

MOST_NEW_PARTS = 24
"""So many parts of a stage that nobody has read yet are read at once."""
_TOKENS = ("prompt_tokens", "completion_tokens")


class CallKind(NamedTuple):
    """The properties by which calls have different prices."""

    role: Role
    batch: bool


class CallSums(NamedTuple):
    """Model calls, and the tokens that they read and wrote."""

    calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0


class RunningUsage:
    """The sums of a run's model calls."""

    def __init__(self, store: ObjectStore, prefix: str, benchmark: str, run: str) -> None:
        self._store = store
        self._partition = keys.usage(prefix, benchmark=benchmark, run=run)
        self._known: dict[str, dict[CallKind, CallSums]] = {}

    def sums(self) -> dict[CallKind, CallSums]:
        """Return the sums of all calls that are stored by now."""
        total: dict[CallKind, CallSums] = {}
        for part in read_parts(self._store, self._partition, _sums, self._known).values():
            for kind, sums in part.items():
                before = total.get(kind, CallSums())
                total[kind] = CallSums(*(mine + theirs for mine, theirs in zip(before, sums, strict=True)))
        return total


class RunningRollouts:
    """The items of a split that a run has rolled out under one skill with one draw, whatever became of them.

    Args:
        store: the store.
        partition: the prefix of these rollouts.
        run: the run.
    """

    def __init__(self, store: ObjectStore, partition: str, run: str) -> None:
        self._store, self._partition, self._run = store, partition, run
        self._known: dict[str, frozenset[str]] = {}

    def ended(self) -> frozenset[str] | None:
        """Return the ids of the run's own rows; None if there are too many parts to look into."""
        if len(parts_of(self._store, self._partition)) - len(self._known) > MOST_NEW_PARTS:
            return None
        return frozenset[str]().union(*read_parts(self._store, self._partition, self._ids, self._known).values())

    def _ids(self, file: pq.ParquetFile) -> frozenset[str]:
        table = file.read(columns=["run", "item_id"])
        return frozenset(table.filter(pc.equal(table["run"], self._run))["item_id"].to_pylist())


def _sums(file: pq.ParquetFile) -> dict[CallKind, CallSums]:
    # A column may be missing that came later.
    wanted = [name for name in ("role", "batch", *_TOKENS) if name in file.schema_arrow.names]
    table = file.read(columns=wanted)
    batch = table["batch"] if "batch" in wanted else pa.chunked_array([pa.repeat(False, len(table))])
    found = {}
    for (role, in_batch), calls in Counter(zip(table["role"].to_pylist(), batch.to_pylist(), strict=True)).items():
        rows = table.filter(pc.and_(pc.equal(table["role"], role), pc.equal(batch, in_batch)))
        tokens = [pc.sum(rows[name]).as_py() for name in _TOKENS]
        found[CallKind(role, bool(in_batch))] = CallSums(calls, *tokens)
    return found
