"""The ledger of re-gating: one object per night, written once."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Literal

import pyarrow as pa
from pydantic import AwareDatetime, Field

from skillopt_airflow.core.errors import ObjectMissing
from skillopt_airflow.core.gate.item_scores import Evaluation, Metric, metric_value
from skillopt_airflow.core.gate.night_verdict import NightMean
from skillopt_airflow.core.gate.paired import PairedTable
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.types import Value
from skillopt_airflow.store.keys import RegateKeys
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.tables.parquet import from_parquet, to_parquet

Rival = Literal["seed", "previous", "promise"]

_CONTENTS = pa.schema([("date", pa.string()), ("item_id", pa.string()), ("content", pa.string())])


class Contender(Value):
    """A skill that a night measured."""

    version: str
    """The published version; empty for the seed skill."""
    sha256: str


class Promise(Value):
    """The published score of a champion on held-out items."""

    score: float
    """Mean of the gate metric."""
    low: float
    """Lower end of the 95% interval."""


class Night(Document):
    """The measurements of a night."""

    benchmark: str
    target: str
    date: str
    """Date of the items, YYYY-MM-DD."""
    run: str
    champion: Contender
    seed: Contender
    previous: Contender | None
    """The previous champion; None if there was none, or it was the seed."""
    items: int
    metric: Metric
    mixed_weight: float | None = None
    """`evaluation.gate_mixed_weight` if the metric is mixed, otherwise None."""
    scores: dict[str, float]
    """Means by role: champion, seed, previous."""
    against_seed: PairedTable
    against_previous: PairedTable | None
    settled: AwareDatetime
    """UTC."""
    means: dict[Rival, NightMean]
    """Differences between the champion's score and each rival's."""
    promised: Promise | None = None
    """None if no skill was published for this target with a held-out score of this metric."""
    contents: dict[str, str] = Field(default_factory=dict)
    """Fingerprints of the content of all items with a score, by ID; empty if all nights are read."""
    intervals: dict[str, tuple[float, float]] = Field(default_factory=dict)
    """95% intervals of the scores by role."""

    @property
    def measure(self) -> tuple[Metric, float | None]:
        return self.metric, self.mixed_weight


class NightIndex(Document):
    """All nights of a benchmark and target, without the contents of their items."""

    nights: tuple[Night, ...]


class ReportedEvent(Document):
    """The run that reported an event of a champion: a decline, a drift, or that nights stopped counting."""

    run: str


class NightTable:
    def __init__(self, store: ObjectStore, keys: RegateKeys) -> None:
        self._store = store
        self._keys = keys

    def read(self, date: str) -> Night | None:
        return self._store.find_model(self._keys.night(date), Night)

    def all(self) -> list[Night]:
        """Return all concluded nights in the order of their conclusion, without `contents`."""
        indexed = {night.date: night for night in self._indexed()}
        # Only the folders are listed, because listing all objects takes longer than reading the index.
        folders = self._store.list_folders(self._keys.folder)
        dates = [name.removeprefix("date=") for name in folders if name.startswith("date=")]
        nights = [indexed[date] if date in indexed else self.read(date) for date in dates]
        bare = [night.model_copy(update={"contents": {}}) for night in nights if night is not None]
        return sorted(bare, key=lambda night: (night.settled, night.date))

    def contents(self, nights: Sequence[Night]) -> dict[str, dict[str, str]]:
        """Return the contents of concluded nights: fingerprints by date and item.

        They are stored in a separate table, because they are large and few tasks need them.
        """
        contents = dict(self._indexed_contents())
        for date in {night.date for night in nights} - contents.keys():
            contents[date] = self._store.get_model(self._keys.night(date), Night).contents
        return {night.date: contents[night.date] for night in nights}

    def scores(self, date: str) -> dict[str, dict[str, float | None]]:
        """Return the gate metric of a concluded night by item and role; None for an item without a score."""
        rows = from_parquet(self._store.get_bytes(self._keys.paired(date))).to_pylist()
        return {row.pop("item_id"): row for row in rows}

    def conclude(self, night: Night, evaluations: Mapping[str, Evaluation], mixed_weight: float) -> Night:
        """Write a night unless one exists for its date; return the stored one."""
        rows = _rows(evaluations, night.metric, mixed_weight)
        # First, so that a concluded night always has its rows; another attempt writes the same ones.
        self._store.put_bytes(self._keys.paired(night.date), to_parquet(rows))
        stored = self._store.first_model(self._keys.night(night.date), night)
        if stored is not night:
            return stored
        nights = self.all()
        self._store.put_model(self._keys.nights, NightIndex(nights=tuple(nights)))
        self._store.put_bytes(self._keys.contents, to_parquet(_content_rows(self.contents(nights))))
        return night

    def reporter(self, sha256: str, event: str) -> str | None:
        """Return the run that reported an event of a champion, if any."""
        reported = self._store.find_model(self._keys.reported(sha256, event), ReportedEvent)
        return None if reported is None else reported.run

    def claim_report(self, sha256: str, event: str, run: str) -> str:
        """Return the run that reports an event of a champion: `run`, unless another one was first."""
        return self._store.first_model(self._keys.reported(sha256, event), ReportedEvent(run=run)).run

    def _indexed(self) -> tuple[Night, ...]:
        index = self._store.find_model(self._keys.nights, NightIndex)
        return () if index is None else index.nights

    def _indexed_contents(self) -> Mapping[str, dict[str, str]]:
        try:
            rows = from_parquet(self._store.get_bytes(self._keys.contents))
        except ObjectMissing:
            return {}
        contents: dict[str, dict[str, str]] = defaultdict(dict)
        for row in rows.to_pylist():
            contents[row["date"]][row["item_id"]] = row["content"]
        return contents


def _content_rows(contents: Mapping[str, Mapping[str, str]]) -> pa.Table:
    rows = [
        {"date": date, "item_id": item, "content": content}
        for date, of_night in contents.items()
        for item, content in of_night.items()
    ]
    return pa.Table.from_pylist(rows, _CONTENTS)


def _rows(evaluations: Mapping[str, Evaluation], metric: Metric, mixed_weight: float) -> pa.Table:
    scores = {role: evaluation.scores for role, evaluation in evaluations.items()}
    rows = [
        {"item_id": item}
        | {role: metric_value(found[item], metric, mixed_weight) for role, found in scores.items() if item in found}
        for item in sorted(set().union(*scores.values()))
    ]
    return pa.Table.from_pylist(rows, pa.schema([("item_id", pa.string()), *((role, pa.float64()) for role in scores)]))
