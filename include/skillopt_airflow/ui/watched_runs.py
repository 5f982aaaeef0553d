"""The trainings that somebody watches: each is kept open, so that a refresh reads only what is new."""

from datetime import datetime
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from skillopt_airflow.core.errors import StoreUnavailable
from skillopt_airflow.core.resource_groups import StorageGroup
from skillopt_airflow.training.run_record import RunRef
from skillopt_airflow.ui.pages import app

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from skillopt_airflow.report.curve import Curve
    from skillopt_airflow.training.progress import Progress
    from skillopt_airflow.training.progress_reader import ProgressReader

MOST_WATCHED = 32
"""Trainings that are kept open."""
MOST_SECONDS_IN_LINE = 5
"""Time for which a look waits for others at the same training: each waits in a thread of the API server."""


class Sight(NamedTuple):
    """A view of a training."""

    progress: "Progress"
    curve: str
    """The learning curve as SVG; empty before the seed was measured."""


class WatchedRun:
    """A training, and its curve as it was drawn last; may be looked at by several threads."""

    def __init__(self, reader: "ProgressReader") -> None:
        self._reader, self._lock = reader, Lock()
        self._drawn: tuple[Curve, str] | None = None

    def look(self, now: datetime) -> Sight | None:
        """Return what there is to see; None if the run has stored nothing yet.

        Raises:
            StoreError: the store does not give it, or not yet to those who asked before.
        """
        if not self._lock.acquire(timeout=MOST_SECONDS_IN_LINE):
            raise StoreUnavailable("the store has not answered others who look at this training; it is asked again")
        try:
            progress = self._reader.read(now)
            return None if progress is None else Sight(progress, self._curve(progress))
        finally:
            self._lock.release()

    def _curve(self, progress: "Progress") -> str:
        """Return the curve, drawn anew only after a moment has ended, because that takes longer than all the rest."""
        from skillopt_airflow.report.curve import Curve
        from skillopt_airflow.report.plots import learning_curve

        if progress.seed is None or progress.best is None:
            return ""
        curve = Curve(progress.metric, progress.seed, progress.best, progress.moments, {})
        if self._drawn is None or self._drawn[0] != curve:
            self._drawn = curve, learning_curve(curve)
        return self._drawn[1]


@lru_cache(maxsize=MOST_WATCHED)
def _watched(client: "S3Client", storage: StorageGroup, benchmark: str, run: str) -> WatchedRun:
    from skillopt_airflow.store.keys import RunKeys
    from skillopt_airflow.store.objects import ObjectStore
    from skillopt_airflow.training.progress_reader import ProgressReader

    store = ObjectStore(client, storage.bucket, f"connection {storage.conn_id} (storage.conn_id)")
    return WatchedRun(ProgressReader(store, RunKeys(storage.prefix, benchmark, run)))


def watched_run(run: RunRef) -> WatchedRun:
    """Return a training that is kept open; another one if its connection has changed.

    Raises:
        ConfigError: Airflow has no connection `storage.conn_id`.
    """
    return _watched(app.state.clients.of(run.storage), run.storage, run.benchmark, run.run)
