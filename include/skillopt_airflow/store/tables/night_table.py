"""The ledger of re-gating: one object a night, written once, from which everything else follows."""

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
    """As it is published; empty for the seed skill."""
    sha256: str


class Promise(Value):
    """The score that a champion was published with, by items that decided nothing."""

    score: float
    """Mean of the gate metric."""
    low: float
    """Lower end of its 95 % interval."""


class Night(Document):
    """The measurements of a night, whatever becomes of the alias later."""

    benchmark: str
    target: str
    date: str
    """YYYY-MM-DD, of the items."""
    run: str
    champion: Contender
    seed: Contender
    previous: Contender | None
    """The champion before; None if there was none, or it was the seed."""
    items: int
    metric: Metric
    mixed_weight: float | None = None
    """`evaluation.gate_mixed_weight` where the metric is mixed; None otherwise."""
    scores: dict[str, float]
    """Means by role: champion, seed, previous."""
    against_seed: PairedTable
    against_previous: PairedTable | None
    settled: AwareDatetime
    """UTC."""
    means: dict[Rival, NightMean]
    """Of the champion's score less each rival's."""
    promised: Promise | None = None
    """None where nothing was published for this target, or not with a score of this metric on items that nothing was
    selected on."""
    contents: dict[str, str] = Field(default_factory=dict)
    """By id, a fingerprint of what the target saw of each item that has a score; empty where all nights are read."""
    intervals: dict[str, tuple[float, float]] = Field(default_factory=dict)
    """95 % intervals of the scores by role."""

    def measures_as(self, other: "Night") -> bool:
        return (self.metric, self.mixed_weight) == (other.metric, other.mixed_weight)

    def against(self, rival: Rival) -> NightMean | None:
        """Return the champion's score less a rival's; None without that rival."""
        return self.means.get(rival)


class NightIndex(Document):
    """All nights of a benchmark and target, without the contents of their items."""

    nights: tuple[Night, ...]


class Told(Document):
    """The run that reported a champion's decline, a drift or that nights stopped counting."""

    run: str


class NightTable:
    """The nights of one benchmark and target."""

    def __init__(self, store: ObjectStore, keys: RegateKeys) -> None:
        self._store = store
        self._keys = keys

    def read(self, date: str) -> Night | None:
        return self._store.find_model(self._keys.night(date), Night)

    def all(self) -> list[Night]:
        """Return every settled night, in the order in which they were settled; `contents` has those of their items."""
        together = {night.date: night for night in self._together()}
        # Without a list of all that nights have stored, which takes longer to read than the nights together.
        dates = filter(None, map(self._keys.date_of, self._store.list_folders(self._keys.folder)))
        found = [together[date] if date in together else self.read(date) for date in dates]
        nights = [night for night in found if night is not None]
        bare = [night.model_copy(update={"contents": {}}) for night in nights]
        return sorted(bare, key=lambda night: (night.settled, night.date))

    def contents(self, nights: Sequence[Night]) -> dict[str, dict[str, str]]:
        """Return the contents of settled nights by date: fingerprints by item.

        They are read in one piece, apart from the nights: they are most of these, and few tasks ask for them.
        """
        together = self._contents_together()
        return {
            night.date: together[night.date]
            if night.date in together
            else self._store.get_model(self._keys.night(night.date), Night).contents
            for night in nights
        }

    def scores(self, date: str) -> dict[str, dict[str, float | None]]:
        """Return the gate metric of a settled night by item and role; None where an item has no score."""
        rows = from_parquet(self._store.get_bytes(self._keys.paired(date))).to_pylist()
        return {row.pop("item_id"): row for row in rows}

    def settle(self, night: Night, evaluations: Mapping[str, Evaluation], mixed_weight: float) -> Night:
        """Write a night unless it was written before; returns the one that stands."""
        rows = _rows(evaluations, night.metric, mixed_weight)
        # First, so that a settled night always has its rows; another attempt writes the same ones.
        self._store.put_bytes(self._keys.paired(night.date), to_parquet(rows))
        standing = self._store.first_model(self._keys.night(night.date), night)
        if standing is not night:
            return standing
        everything = self.all()
        self._store.put_model(self._keys.nights, NightIndex(nights=tuple(everything)))
        self._store.put_bytes(self._keys.contents, to_parquet(_content_rows(self.contents(everything))))
        return night

    def told_by(self, sha256: str, what: str) -> str | None:
        """Return the run that reported what became of the champion with this hash; None if none did yet."""
        told = self._store.find_model(self._keys.told(sha256, what), Told)
        return None if told is None else told.run

    def first_to_tell(self, sha256: str, what: str, run: str) -> str:
        """Return the run that reports what became of the champion with this hash: this one, unless another is."""
        return self._store.first_model(self._keys.told(sha256, what), Told(run=run)).run

    def _together(self) -> tuple[Night, ...]:
        index = self._store.find_model(self._keys.nights, NightIndex)
        return () if index is None else index.nights

    def _contents_together(self) -> Mapping[str, dict[str, str]]:
        try:
            rows = from_parquet(self._store.get_bytes(self._keys.contents))
        except ObjectMissing:
            return {}
        found: dict[str, dict[str, str]] = defaultdict(dict)
        for date, item, content in zip(*(rows[name].to_pylist() for name in _CONTENTS.names), strict=True):
            found[date][item] = content
        return found


def _content_rows(contents: Mapping[str, Mapping[str, str]]) -> pa.Table:
    rows = [(date, item, content) for date, of_night in contents.items() for item, content in of_night.items()]
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(_CONTENTS)
    return pa.table(dict(zip(_CONTENTS.names, columns, strict=True)), schema=_CONTENTS)


def _rows(evaluations: Mapping[str, Evaluation], metric: Metric, mixed_weight: float) -> pa.Table:
    roles: Sequence[str] = tuple(evaluations)
    items = sorted({item for evaluation in evaluations.values() for item in evaluation.scores})
    columns: dict[str, list[str] | list[float | None]] = {"item_id": items}
    for role in roles:
        scores = evaluations[role].scores
        columns[role] = [metric_value(scores[item], metric, mixed_weight) if item in scores else None for item in items]
    return pa.table(columns, schema=pa.schema([("item_id", pa.string()), *((role, pa.float64()) for role in roles)]))
