"""The progress of a training, as a tab of its DAG run and of its parts; the page renews itself while it goes on."""

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from threading import Lock
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

from airflow.api_fastapi.common.db.common import SessionDep
from fastapi import Depends, Request
from fastapi.responses import HTMLResponse

from skillopt_airflow.core.errors import SkillOptError, StoreUnavailable
from skillopt_airflow.core.resource_groups import StorageGroup
from skillopt_airflow.pipeline.dag_ids import epoch_dag_id, train_dag_id
from skillopt_airflow.report.summary import usd
from skillopt_airflow.training.run_record import RunRef
from skillopt_airflow.ui.access import may_read_dag_run
from skillopt_airflow.ui.pages import app, count, dag_run_tab, message_page, page
from skillopt_airflow.ui.reports import DagRunRow, row_of
from skillopt_airflow.ui.training_runs import TrainingDagRun, training_dag_run
from skillopt_airflow.ui.trainings import benchmark_of, training_of

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

    from skillopt_airflow.report.curve import Curve
    from skillopt_airflow.report.run_page import VerdictSign
    from skillopt_airflow.training.progress import MomentProgress, Progress, StageName
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


Amount = TypeVar("Amount", int, float)

PROGRESS_ROUTE = "/dag_runs/{dag_id}/{run_id}/progress"
"""Below the plugin's prefix; the ids as Airflow's UI has them."""

PROGRESS_TAB = dag_run_tab("Progress", PROGRESS_ROUTE)

SECONDS_TO_REFRESH = 5
MOST_ROWS = 200
"""Moments that the table has, the latest; the curve has all."""
UNITS = (("min", 60, ".0f"), ("hours", 3600, ".1f"), ("days", 86_400, ".1f"))
"""In which durations are told: the unit, its seconds, its digits."""
MOST_OF_A_UNIT = 90
"""Above so many of a unit a duration is told in the next."""
NEAR = 0.8
"""Share of a limit from which on the page says that it is near."""
STAGES: "Mapping[StageName, str]" = {
    "preparation": "Checks data, models and sandbox image, before the first call that is paid for",
    "seed": "Measures the skill that it begins with on the selection split",
    "rollout": "Runs its batch with the present skill",
    "reflection": "The optimizer reflects on what went right and wrong",
    "selection": "The optimizer merges what it proposes and makes a candidate of it",
    "screen": "Runs the candidate on the step’s own batch",
    "evaluation": "Measures the candidate on the selection split",
    "gate": "The gate decides on the candidate",
    "longitudinal": "Runs the last skills of two epochs on the same items",
    "slow_update": "The optimizer writes guidance from comparing two epochs",
    "meta_reflect": "The optimizer reflects on the epoch as a whole",
    "final": "Measures the last skill on the selection split",
    "test": "Measures skills on the test split",
    "report": "Writes the report",
    "publication": "Compares the best skill with the champion, to publish it",
    "over": "Everything is stored; of tasks that were cleared, only what failed is run again",
}


class Status(NamedTuple):
    """The state of a training in a word, and how it looks."""

    word: str
    css: str


class Limit(NamedTuple):
    """The spending of a kind, against its limit and the estimate before the first call."""

    name: str
    spent: str
    limit: str
    """Empty without one."""
    share: float
    """Of the limit, at most 1."""
    estimate: str
    """Empty if there is none."""

    @property
    def percent(self) -> int:
        """Return the share in percent, rounded down: it is 100 where all is spent."""
        return math.floor(100 * self.share + 1e-9)

    @property
    def css(self) -> str:
        """Return the class of its bar."""
        return "spent" if self.share >= 1 else "near" if self.share >= NEAR else ""


class End(NamedTuple):
    """The time at which a training is likely to end."""

    words: str
    """How long that is from now."""
    first: datetime
    last: datetime


class Row(NamedTuple):
    """A moment in the table."""

    moment: "MomentProgress"
    verdict: "VerdictSign"


@app.get(PROGRESS_ROUTE, dependencies=[Depends(may_read_dag_run)])
def dag_run_progress(
    request: Request, dag_id: str, run_id: str, row: Annotated[DagRunRow | None, Depends(row_of)], session: SessionDep
) -> HTMLResponse:
    """Return how far the training is that the DAG run is, or is a part of."""
    benchmark = benchmark_of(dag_id, train_dag_id, epoch_dag_id)
    if benchmark is None:
        text = f"Progress is that of trainings of skills, the runs of {train_dag_id('<benchmark>')}."
        return message_page(404, "This DAG trains no skill", text)
    if row is None:
        return message_page(404, "No such run", f"{dag_id} has no run {run_id}.")
    try:
        training = training_of(benchmark, dag_id, run_id, row.conf)
    except SkillOptError as error:
        return message_page(404, "This run has no progress", str(error))
    now = datetime.now(UTC)
    sight = watched_run(training).look(now)
    dag_run = training_dag_run(session, benchmark, run_id)
    return page(
        request,
        "progress.html",
        plots=True,
        training=training,
        dag_run=dag_run,
        status=status_of(dag_run, sight),
        sight=sight,
        progress=None if sight is None else sight.progress,
        stage="" if sight is None else STAGES[sight.progress.stage.name],
        limits=() if sight is None else limits(sight.progress),
        rows=() if sight is None else rows(sight.progress),
        most_rows=MOST_ROWS,
        end=None if sight is None else end_of(sight.progress, now),
        seconds=SECONDS_TO_REFRESH,
        shown_at=to_the_minute(now),
    )


def status_of(dag_run: TrainingDagRun, sight: Sight | None) -> Status:
    """Return the state of a training by what Airflow says, and what the run has stored."""
    stopped = sight is not None and bool(sight.progress.stopped)
    if dag_run.state == "failed":
        return Status("failed", "missed")
    if dag_run.state == "success":
        return Status("stopped by its budget", "indecisive") if stopped else Status("finished", "met")
    if dag_run.waiting:
        return Status("waits for approval", "indecisive")
    if stopped and dag_run.goes_on:
        return Status("stops, its budget is spent", "indecisive")
    return Status(dag_run.state if dag_run.state else "not known to Airflow any more", "")


def limits(progress: "Progress") -> Sequence[Limit]:
    """Return calls, tokens and US dollars against the budget's limits."""
    spent, budget, estimate = progress.spent, progress.budget, progress.estimate
    calls = tokens = price = ""
    if estimate is not None:
        calls = f"at most {count(sum(estimate.calls.values()))}"
        tokens = f"{count(_rounded(estimate.tokens_likely))} to {count(_rounded(estimate.tokens_most))}"
        if estimate.usd_likely is not None and estimate.usd_most is not None:
            price = f"{usd(estimate.usd_likely)} to {usd(estimate.usd_most)}"
    return (
        _limit("Calls", spent.calls, budget.max_calls, count, calls),
        _limit("Tokens", spent.tokens, budget.max_tokens, count, tokens),
        _limit("US dollars", spent.usd, budget.max_usd, usd, price),
    )


def rows(progress: "Progress") -> Sequence[Row]:
    """Return the latest moments, the last one first."""
    from skillopt_airflow.report.run_page import verdict

    return [Row(moment, verdict(moment.decision)) for moment in progress.moments[: -MOST_ROWS - 1 : -1]]


def end_of(progress: "Progress", now: datetime) -> End | None:
    """Return when the training is likely to end; None before its first step has."""
    if progress.left is None:
        return None
    first, last = (to_the_minute(now + timedelta(seconds=each)) for each in progress.left)
    return End(span(*progress.left), first, last)


def to_the_minute(when: datetime) -> datetime:
    """Leave out seconds: nobody sees them, and with them no refresh would find the part as it was."""
    return when.replace(second=0, microsecond=0)


def span(low: float, high: float) -> str:
    """Show a range of seconds that nobody knows to the second."""
    unit, seconds, form = next((one for one in UNITS if high < MOST_OF_A_UNIT * one[1]), UNITS[-1])
    least, most = (format(each / seconds, form) for each in (low, high))
    if float(most) == 0:
        return "less than a minute"
    return f"{most} {unit}" if least == most else f"{least} to {most} {unit}"


def _rounded(value: int) -> int:
    """Return a guess without the digits that nobody can know: two are left."""
    return round(value, 2 - len(str(value)))


def _limit(
    name: str, spent: Amount | None, limit: Amount | None, form: Callable[[Amount], str], estimate: str
) -> Limit:
    share = 0.0 if limit is None or spent is None else min(1.0, spent / limit)
    shown = "not known" if spent is None else form(spent)
    return Limit(name, shown, "" if limit is None else form(limit), share, estimate)
