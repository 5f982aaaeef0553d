"""The page of all skills: each benchmark and target with its champion, its newest night, and open questions."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated, NamedTuple

from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep
from airflow.models.dag import DagModel
from airflow.models.dagrun import DagRun
from airflow.sdk.exceptions import AirflowException
from airflow.utils.state import DagRunState
from airflow.utils.types import DagRunType
from fastapi import Query, Request
from fastapi.responses import HTMLResponse
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.errors import SkillOptError
from skillopt_airflow.pipeline.addresses import UI_PREFIX
from skillopt_airflow.pipeline.dag_ids import publish_dag_id, regate_dag_id, rollback_dag_id, train_dag_id
from skillopt_airflow.report.sparkline import sparkline
from skillopt_airflow.training.benchmark_settings import benchmark_config
from skillopt_airflow.training.run import TrainingRun
from skillopt_airflow.training.run_record import RunRef
from skillopt_airflow.ui.access import Readable, readable_dags
from skillopt_airflow.ui.pages import app, page
from skillopt_airflow.ui.training_runs import trainings_under_way
from skillopt_airflow.ui.waiting_approvals import WaitingApproval, waiting_approvals

if TYPE_CHECKING:
    from skillopt_airflow.training.skill_overview import Buckets, SkillOverview


def late_dags(session: Session, patience: Mapping[str, timedelta], now: datetime) -> set[str]:
    """Return those of the DAGs whose newest scheduled night is late; a paused DAG has no nights to be late.

    Args:
        session: Airflow's database.
        patience: by DAG, the time after a night's end at which it is late.
        now: with a time zone.
    """
    due = select(DagModel.dag_id, DagModel.next_dagrun_create_after).where(
        DagModel.dag_id.in_(patience), DagModel.is_paused.is_(False), DagModel.is_stale.is_(False)
    )
    newest = (
        select(DagRun.dag_id, func.max(DagRun.logical_date).label("logical_date"))
        .where(DagRun.dag_id.in_(patience), DagRun.run_type.in_((DagRunType.SCHEDULED, DagRunType.BACKFILL_JOB)))
        .group_by(DagRun.dag_id)
        .subquery()
    )
    # A night that a backfill has gone through again is a backfill's from then on, and late by nature.
    not_over = (DagRun.state != DagRunState.SUCCESS) & (DagRun.run_type == DagRunType.SCHEDULED)
    ended = select(DagRun.dag_id, DagRun.data_interval_end).join(
        newest, (newest.c.dag_id == DagRun.dag_id) & (newest.c.logical_date == DagRun.logical_date)
    )
    unfinished = {row.dag_id: row.data_interval_end for row in session.execute(ended.where(not_over))}
    return {
        dag_id
        for dag_id, due_at in session.execute(due)
        for moment in (due_at, unfinished.get(dag_id))
        if moment is not None and moment + patience[dag_id] < now
    }


SKILLS_VIEW = {
    "name": "Skills",
    "destination": "nav",
    "nav_top_level": True,
    "icon": f"{UI_PREFIX.removeprefix('/')}/static/skills.svg",
    "icon_dark_mode": f"{UI_PREFIX.removeprefix('/')}/static/skills-dark.svg",
    "url_route": "skillopt-skills",
    # Without a slash in front, a browser reads it below the path that the API server itself is at.
    "href": f"{UI_PREFIX.removeprefix('/')}/skills",
}
"""The entry in Airflow's navigation."""
LINES = 25
"""Lines of one page: each is read when it is shown."""
THREADS = 10
"""As many connections as an S3 client keeps."""
MOST_QUERY = 200

Approvals = Mapping[tuple[str, str], Sequence[WaitingApproval]]
"""What waits for an answer, by benchmark and target."""


class Entry(NamedTuple):
    """A line of the list before anything of it is read."""

    benchmark: str
    target: str
    """Empty where the benchmark has neither published skills nor nights."""
    problem: str = ""
    """Why the benchmark cannot be read."""


class Line(NamedTuple):
    """A line of the list as the template shows it."""

    entry: Entry
    skill: "SkillOverview | None"
    """None for a benchmark without any, or one that cannot be read."""
    approvals: Sequence[WaitingApproval]
    late: bool

    @property
    def train_dag(self) -> str:
        """The DAG whose form makes a first skill."""
        return train_dag_id(self.entry.benchmark)

    @property
    def regate_dag(self) -> str:
        """The DAG of the nights."""
        return regate_dag_id(self.entry.benchmark)

    @property
    def evidence(self) -> str:
        """The evidence of a decline in words."""
        last = self.skill.nights[-1].judgement if self.skill is not None and self.skill.nights else None
        if last is None or self.skill is None:
            return ""
        return f"CUSUM {self.skill.nights[-1].decline:.1f}, alarm at {last.alarm:.1f}"

    @property
    def spark(self) -> str:
        """The same over the newest nights as SVG; empty without nights."""
        if self.skill is None or not self.skill.nights:
            return ""
        nights = self.skill.nights
        described = f"Evidence of a decline over {len(nights)} nights; now {self.evidence}."
        return sparkline([night.decline for night in nights], nights[-1].judgement.alarm, described)


@app.get("/skills")
def skills(
    request: Request,
    readable: Readable,
    user: GetUserDep,
    session: SessionDep,
    q: Annotated[str, Query(max_length=MOST_QUERY)] = "",
    number: Annotated[int, Query(alias="page", ge=1, le=100_000)] = 1,
) -> HTMLResponse:
    """Return a page of the list: of the benchmarks that the user may read, those with the words `q` in their names."""
    configs, entries = known_entries(readable)
    wanted = [entry for entry in entries if matches(entry, q)]
    last = max(1, -(-len(wanted) // LINES))
    shown = wanted[(min(number, last) - 1) * LINES :][:LINES]
    with ThreadPoolExecutor(THREADS) as pool:
        overviews = list(pool.map(partial(_overview, configs), shown))
    approvals, late = _asked_and_late(shown, entries, configs, session, user)
    lines = [
        Line(entry, skill, approvals.get((entry.benchmark, entry.target), ()), (entry.benchmark, entry.target) in late)
        for entry, skill in zip(shown, overviews, strict=True)
    ]
    return page(
        request,
        "skills.html",
        lines=lines,
        query=q,
        total=sum(1 for entry in entries if entry.target),
        found=len(wanted),
        readable=len(readable),
        number=min(number, last),
        last=last,
        shapes=SHAPES,
        trainings=trainings_under_way(session, readable),
    )


SHAPES: Mapping[str, str] = {"keep": "accept", "demote": "reject", "stale": "reject", "drift": "indecisive"}
"""Verdicts of nights, and the classes of the stylesheet that show them; watch is plain."""


def matches(entry: Entry, query: str) -> bool:
    """Return whether every word of the query is in the names of benchmark and target."""
    names = f"{entry.benchmark} {entry.target}".casefold()
    return all(word in names for word in query.casefold().split())


def known_entries(readable: Sequence[str]) -> tuple[dict[str, TrainConfig], list[Entry]]:
    """Return the configurations of the benchmarks, and a line for every target of each, then for those without any."""
    configs: dict[str, TrainConfig] = {}
    problems: dict[str, str] = {}
    for name in readable:
        try:
            configs[name] = benchmark_config(name)
        except SkillOptError as error:
            problems[name] = str(error)
    with ThreadPoolExecutor(THREADS) as pool:
        found = dict(zip(configs, pool.map(_targets, configs.items()), strict=True))
    entries = []
    for name in readable:
        targets = found.get(name, problems.get(name, ""))
        if isinstance(targets, str):
            entries.append(Entry(name, "", targets))
        else:
            entries += [Entry(name, target) for target in targets] or [Entry(name, "")]
    # What there is to see before what there is to do.
    return configs, sorted(entries, key=lambda entry: not entry.target)


def buckets_of(config: TrainConfig) -> "Buckets":
    """Return where a benchmark's runs and skills are.

    Raises:
        ConfigError: Airflow has no connection of this name.
    """
    from skillopt_airflow.training.skill_overview import Buckets
    from skillopt_airflow.ui.buckets import open_bucket

    storage = config.storage
    return Buckets(open_bucket(storage, storage.bucket), open_bucket(storage, storage.artifact_bucket), storage.prefix)


def _targets(benchmark: tuple[str, TrainConfig]) -> list[str] | str:
    """Return the targets of a benchmark, or why they are not known."""
    from skillopt_airflow.training.skill_overview import targets

    name, config = benchmark
    try:
        return targets(buckets_of(config), name)
    except (SkillOptError, AirflowException) as error:
        return str(error)


def _overview(configs: Mapping[str, TrainConfig], entry: Entry) -> "SkillOverview | None":
    from skillopt_airflow.training.skill_overview import overview

    if not entry.target:
        return None
    config = configs[entry.benchmark]
    return overview(buckets_of(config), entry.benchmark, entry.target)


def _asked_and_late(
    shown: Sequence[Entry],
    entries: Sequence[Entry],
    configs: Mapping[str, TrainConfig],
    session: SessionDep,
    user: GetUserDep,
) -> tuple[Approvals, set[tuple[str, str]]]:
    """Return what waits for an approval, and whose night is late, both by benchmark and target.

    Args:
        shown: lines of the page; only their benchmarks are looked at.
        entries: all lines, since what is about a line of another page is not to be seen on this one.
        configs: the benchmarks' configurations.
        session: Airflow's database.
        user: who looks at the page.
    """
    names = {entry.benchmark for entry in shown if entry.benchmark in configs}
    asking = {dag(name): name for name in names for dag in (train_dag_id, publish_dag_id, rollback_dag_id)}
    nightly = {regate_dag_id(name): name for name in names}
    allowed = readable_dags([*asking, *nightly], user)
    patience = {dag: timedelta(hours=configs[nightly[dag]].alerts.late_hours) for dag in nightly if dag in allowed}
    late = [nightly[dag] for dag in late_dags(session, patience, datetime.now(UTC))]
    waiting = [(asking[one.dag_id], one) for one in waiting_approvals(session, allowed & asking.keys())]
    return by_target(waiting, entries, configs), {_line(name, _own_target(name, entries), entries) for name in late}


def by_target(
    waiting: Sequence[tuple[str, WaitingApproval]], entries: Sequence[Entry], configs: Mapping[str, TrainConfig]
) -> Approvals:
    """Return what waits for an approval by benchmark and target.

    Args:
        waiting: each with its benchmark.
        entries: all lines of these benchmarks.
        configs: the configurations of these.
    """
    placed: dict[tuple[str, str], list[WaitingApproval]] = {}
    for name, one in waiting:
        target = one.target
        if not target and one.dag_id != rollback_dag_id(name):
            target = _trained_for(name, configs[name], one.run)
        placed.setdefault(_line(name, target or _own_target(name, entries), entries), []).append(one)
    return placed


def _trained_for(benchmark: str, config: TrainConfig, run: str) -> str:
    """Return the target of a training; empty where that is not to be known."""
    from skillopt_airflow.ui.buckets import KeptConnections

    ref = RunRef(benchmark=benchmark, run=run, storage=config.storage)
    try:
        return str(TrainingRun(ref, KeptConnections()).config.model.target)
    except (SkillOptError, AirflowException):
        return ""


def _own_target(benchmark: str, entries: Sequence[Entry]) -> str:
    """Return the target that a benchmark has when a run names none; its first line's where that is not to be known."""
    from skillopt_airflow.pipeline.triggered import base_target

    try:
        return base_target(benchmark)
    except (SkillOptError, AirflowException):
        return _first(entries, benchmark)


def _line(benchmark: str, target: str, entries: Sequence[Entry]) -> tuple[str, str]:
    """Return the line of a target; the benchmark's first one where it has nothing yet, and so no line."""
    has_line = any((entry.benchmark, entry.target) == (benchmark, target) for entry in entries)
    return benchmark, target if has_line else _first(entries, benchmark)


def _first(entries: Sequence[Entry], benchmark: str) -> str:
    return next(entry.target for entry in entries if entry.benchmark == benchmark)
