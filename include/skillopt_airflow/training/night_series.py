"""All nights of a benchmark and target as one small document, so that a page reads one object and judges nothing."""

from typing import TYPE_CHECKING

from skillopt_airflow.core.documents import Document
from skillopt_airflow.core.night_verdict import NightPoint
from skillopt_airflow.store.keys import RegateKeys
from skillopt_airflow.store.night_table import NightTable
from skillopt_airflow.training.night import LedgerRow, verdict_after

if TYPE_CHECKING:
    from skillopt_airflow.store.objects import ObjectStore

MOST_POINTS = 400
"""Nights that the document holds, the newest ones: more than a year of them."""


class NightSeries(Document):
    """The newest nights with the verdict after each, in the order in which they were settled."""

    points: tuple[NightPoint, ...]


def write_series(store: "ObjectStore", keys: RegateKeys, alpha: float, row: LedgerRow) -> None:
    """Add a night that was just settled; others that the document lacks are judged anew.

    Args:
        store: the bucket.
        keys: of the night's benchmark and target.
        alpha: `regate.alpha`.
        row: the night.
    """
    nights = NightTable(store, keys).all()[-MOST_POINTS:]
    stored = store.find_model(keys.series, NightSeries)
    points = () if stored is None else stored.points
    known = {point.date: point for point in points} | {row.night.date: point_of(row)}
    for night in nights:
        if night.date not in known:
            known[night.date] = point_of(verdict_after(nights, alpha, night.date))
    store.put_model(keys.series, NightSeries(points=tuple(known[night.date] for night in nights)))


def read_series(store: "ObjectStore", keys: RegateKeys, most: int = MOST_POINTS) -> list[NightPoint]:
    """Return the newest nights, at most so many, in the order in which they were settled."""
    stored = store.find_model(keys.series, NightSeries)
    return [] if stored is None else list(stored.points[-most:])


def point_of(row: LedgerRow) -> NightPoint:
    """Return what the document keeps of a night."""
    night = row.night
    return NightPoint(
        date=night.date,
        run=night.run,
        champion=night.champion.version,
        previous=None if night.previous is None else night.previous.version,
        items=night.items,
        metric=night.metric,
        scores=night.scores,
        intervals=night.intervals,
        judgement=row.judgement,
        settled=night.settled,
    )
