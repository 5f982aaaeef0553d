"""The states of a run. Equal scores of items are stored once, in separate tables that the states name."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from skillopt_airflow.core.gate.item_scores import Evaluation, ItemScore
from skillopt_airflow.core.run.state import ItemRecord, Measured, RunState, TrackRecord
from skillopt_airflow.core.values.types import canonical_json, sha256
from skillopt_airflow.store.keys import RunKeys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.tables.parquet import from_parquet, to_parquet

SCORES: pa.Schema = pa.schema(
    [("item_id", pa.string()), ("hard", pa.float64()), ("soft", pa.float64()), ("group", pa.string())]
)
"""The items of an evaluation; one without scores is included for its group."""
RECORD: pa.Schema = pa.schema([("item_id", pa.string()), ("total", pa.float64()), ("count", pa.int64())])
"""The items of a track record."""


class RunStates:
    def __init__(self, store: ObjectStore, keys: RunKeys) -> None:
        self._store, self._keys = store, keys
        # Current and best are usually the same, and a table with a given name never changes.
        self._items = lru_cache(maxsize=2)(self._read_items)
        # A running evaluation reads it every second.
        self._tries = lru_cache(maxsize=1)(self._read_tries)

    def read(self, key: str) -> RunState:
        """Return a state with its evaluations, but only the name of its track record; see `record`."""
        state = self._store.get_model(key, RunState)
        return state.model_copy(update={"current": self._whole(state.current), "best": self._whole(state.best)})

    def record(self, state: RunState) -> TrackRecord:
        return self._tries(state.record.stored) if state.record.stored else state.record

    def write(self, keys: Sequence[str], state: RunState) -> None:
        """Store the tables that a state names, then the state under each of the keys."""
        named, tables = _separate(state)
        for name, table in tables.items():
            self._store.put_bytes(self._keys.scores(name), to_parquet(table))
        for key in keys:
            self._store.put_model(key, named)

    def _whole(self, measured: Measured) -> Measured:
        evaluation = measured.evaluation
        scores, groups = self._items(evaluation.stored)
        items = {"scores": scores, "groups": groups}
        return measured.model_copy(update={"evaluation": evaluation.model_copy(update=items)})

    def _read_items(self, name: str) -> tuple[dict[str, ItemScore], dict[str, str]]:
        rows = self._table(name).to_pylist()
        scores = {
            row["item_id"]: ItemScore(hard=row["hard"], soft=row["soft"]) for row in rows if row["hard"] is not None
        }
        return scores, {row["item_id"]: row["group"] for row in rows if row["group"] is not None}

    def _read_tries(self, name: str) -> TrackRecord:
        rows = self._table(name).to_pylist()
        return TrackRecord(items={row.pop("item_id"): ItemRecord(**row) for row in rows})

    def _table(self, name: str) -> pa.Table:
        return from_parquet(self._store.get_bytes(self._keys.scores(name)))


def equal_states(one: RunState, other: RunState) -> bool:
    return _separate(one)[0] == _separate(other)[0]


def _separate(state: RunState) -> tuple[RunState, dict[str, pa.Table]]:
    """Return the state with names of tables instead of scores, and the new tables by name."""
    tables: dict[str, pa.Table] = {}

    def add(table: pa.Table) -> str:
        ordered = table.take(pc.sort_indices(table["item_id"]))
        name = sha256(canonical_json(ordered.to_pydict()))[:32]
        tables[name] = table
        return name

    def named(measured: Measured) -> Measured:
        evaluation = measured.evaluation
        name = evaluation.stored if evaluation.stored else add(_scores(evaluation))
        # The reason is never stored.
        rest: dict[str, Any] = {"scores": {}, "groups": {}, "reason": None, "stored": name}
        return measured.model_copy(update={"evaluation": evaluation.model_copy(update=rest)})

    record = state.record
    if record.items and not record.stored:
        record = TrackRecord(stored=add(_tries(record)))
    update = {"current": named(state.current), "best": named(state.best), "record": record}
    return state.model_copy(update=update), tables


def _scores(evaluation: Evaluation) -> pa.Table:
    scores, groups = evaluation.scores, evaluation.groups
    rows = [
        {"item_id": item, "group": groups.get(item)} | (scores[item].model_dump() if item in scores else {})
        for item in scores | groups
    ]
    return pa.Table.from_pylist(rows, SCORES)


def _tries(record: TrackRecord) -> pa.Table:
    rows = [{"item_id": item, **one.model_dump()} for item, one in record.items.items()]
    return pa.Table.from_pylist(rows, RECORD)
