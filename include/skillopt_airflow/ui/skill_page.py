"""The list of skills, and a skill's page with its text, versions, nights, and actions."""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from airflow.sdk.exceptions import AirflowException
from fastapi import Depends, Query, Request
from fastapi.responses import HTMLResponse

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import SkillOptError
from skillopt_airflow.core.values.provenance import LineOrigin
from skillopt_airflow.core.values.skill import diff_of
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.pipeline.tasks.addresses import UI_PREFIX
from skillopt_airflow.pipeline.tasks.dag_ids import (
    evaluate_dag_id,
    publish_dag_id,
    regate_dag_id,
    rollback_dag_id,
    train_dag_id,
)
from skillopt_airflow.report.html_pages import sparkline
from skillopt_airflow.report.view import SkillLine, diff_lines, readable_moment, skill_lines, slug_of
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config
from skillopt_airflow.ui import access
from skillopt_airflow.ui.access import Readable, may_read
from skillopt_airflow.ui.pages import app, message_page, page, paged

if TYPE_CHECKING:
    from skillopt_airflow.core.gate.night_verdict import NightPoint
    from skillopt_airflow.store.artifacts import ArtifactStore
    from skillopt_airflow.training.report.skill_overview import Buckets, Champion, SkillDetails, SkillOverview

SKILLS_VIEW = {
    "name": "Skills",
    "destination": "nav",
    "nav_top_level": True,
    "icon": f"{UI_PREFIX.removeprefix('/')}/static/skills.svg",
    "icon_dark_mode": f"{UI_PREFIX.removeprefix('/')}/static/skills-dark.svg",
    "url_route": "skillopt-skills",
    # No leading slash, so that browsers resolve it below the API server's base path.
    "href": f"{UI_PREFIX.removeprefix('/')}/skills",
}
"""The entry in Airflow's navigation."""
PAGE_ROWS = 25
THREADS = 10
"""The size of an S3 client's connection pool."""
MAX_QUERY_CHARS = 200


class SkillRow(NamedTuple):
    benchmark: str
    target: str = ""
    """Empty if the benchmark has neither published skills nor nights."""
    problem: str = ""
    """Error of reading the benchmark or the skill."""
    skill: "SkillOverview | None" = None


def evidence(night: "NightPoint") -> str:
    return f"CUSUM {night.decline:.1f}, alarm at {night.judgement.alarm:.1f}"


def spark(nights: "Sequence[NightPoint]") -> str:
    last = nights[-1]
    description = f"Evidence of a decline over {len(nights)} nights; now {evidence(last)}."
    return sparkline([night.decline for night in nights], last.judgement.alarm, description)


@app.get("/skills")
def skills(
    request: Request,
    readable: Readable,
    q: Annotated[str, Query(max_length=MAX_QUERY_CHARS)] = "",
    number: Annotated[int, Query(alias="page", ge=1, le=100_000)] = 1,
) -> HTMLResponse:
    """List the readable benchmarks and targets whose names contain all words of `q`."""
    with ThreadPoolExecutor(THREADS) as pool:
        # List benchmarks that have a skill first.
        rows = sorted((row for each in pool.map(_rows, readable) for row in each), key=lambda one: not one.target)
        matching = [row for row in rows if matches(row, q)]
        on_page, number, last = paged(matching, number, PAGE_ROWS)
        shown = list(pool.map(_read, on_page))
    return page(
        request,
        "skills.html",
        rows=shown,
        query=q,
        total=sum(1 for row in rows if row.target),
        matching=len(matching),
        readable=len(readable),
        number=number,
        last=last,
        train_dag=train_dag_id,
        regate_dag=regate_dag_id,
        evidence=evidence,
        spark=spark,
    )


def matches(row: SkillRow, query: str) -> bool:
    names = f"{row.benchmark} {row.target}".casefold()
    return all(word in names for word in query.casefold().split())


def buckets_of(config: TrainConfig) -> "Buckets":
    from skillopt_airflow.training.report.skill_overview import Buckets

    storage = config.storage
    runs, artifacts = (access.open_bucket(storage, name) for name in (storage.bucket, storage.artifact_bucket))
    return Buckets(runs, artifacts, storage.prefix)


def _rows(benchmark: str) -> Sequence[SkillRow]:
    """Return one row per target of a benchmark; one row without a target if it has none, or with the error."""
    from skillopt_airflow.training.report.skill_overview import targets

    try:
        names = targets(buckets_of(benchmark_config(benchmark)), benchmark)
    except (SkillOptError, AirflowException) as error:
        return [SkillRow(benchmark, problem=str(error))]
    return [SkillRow(benchmark, target) for target in names] if names else [SkillRow(benchmark)]


def _read(row: SkillRow) -> SkillRow:
    from skillopt_airflow.training.report.skill_overview import overview

    if not row.target:
        return row
    try:
        buckets = buckets_of(benchmark_config(row.benchmark))
        return row._replace(skill=overview(buckets, row.benchmark, row.target))
    except SkillOptError as error:
        return row._replace(problem=str(error))


class FilledForm(NamedTuple):
    name: str
    description: str
    dag_id: str
    conf: Mapping[str, Any]

    @property
    def slug(self) -> str:
        return f"do-{self.name.split()[0].lower().replace('-', '')}"

    @property
    def json(self) -> str:
        return json.dumps(self.conf, indent=2, ensure_ascii=False)


def forms_of(
    benchmark: str, target: str, champion: str, trained_by: str, back_to: str, overrides: Mapping[str, Any]
) -> list[FilledForm]:
    """Return the trigger forms for a skill, none without a champion.

    The run `trained_by` trained it, and `back_to` is the version before it, if any. Runs with this target need the
    `overrides`.
    """
    if not champion:
        return []
    more = {"overrides": overrides} if overrides else {}
    forms = [
        FilledForm(
            "Evaluate",
            f"Scores the champion and {back_to or 'the seed skill'} on the test split. Add models to targets or "
            "programs to harnesses to compare the skills there too.",
            evaluate_dag_id(benchmark),
            {
                "skills": [back_to or "seed", champion],
                "targets": [target],
                "overrides": {"model.target": target, **overrides},
            },
        ),
        FilledForm(
            "Re-gate",
            "Runs a night: champion, previous champion, and seed on that night's fresh items. Set a logical date right "
            "after the night's end, such as 00:01 of the next day; midnight belongs to a scheduled run of another "
            "night.",
            regate_dag_id(benchmark),
            {"target": target, **more},
        ),
        FilledForm(
            "Publish for another model",
            "Measures the skill of the same training on another target model, and publishes it if it passes the gate. "
            "Enter the model's name in the form.",
            publish_dag_id(benchmark),
            {"run": trained_by, "target": "provider:model"},
        ),
    ]
    if back_to:
        forms.append(
            FilledForm(
                "Roll back",
                f"Makes {back_to} the champion again, after an approval.",
                rollback_dag_id(benchmark),
                {"version": back_to, "reason": "", "leaving": champion, "model.target": target, **more},
            )
        )
    return forms


SEED = "seed"
"""The seed skill in lists of versions."""
APPROVALS = (("trainings", train_dag_id), ("publications", publish_dag_id), ("rollbacks", rollback_dag_id))
"""Kinds of approval, and the DAG that waits for each."""
MAX_LINES = 500
"""Longest skill that is compared, or shown with origins."""
MAX_DIFF_CHARS = 100_000
MAX_CHOICES = 300
"""Newest versions offered for a comparison; the URL can name any other."""
MAX_NAME = 300


class Diff(NamedTuple):
    before: str
    after: str
    lines: Sequence[tuple[str, str]]
    """CSS class and text."""
    problem: str
    """Reason why there is no diff."""


@app.get("/skills/{benchmark}", dependencies=[Depends(may_read)])
def skill(
    request: Request,
    benchmark: str,
    before: Annotated[str, Query(alias="from", max_length=MAX_NAME)] = "",
    after: Annotated[str, Query(alias="to", max_length=MAX_NAME)] = "",
    target: Annotated[str, Query(max_length=MAX_NAME)] = "",
    number: Annotated[int, Query(alias="page", ge=1, le=10_000)] = 1,
) -> HTMLResponse:
    from skillopt_airflow.training.report.skill_overview import VERSIONS, read_details, targets

    config = benchmark_config(benchmark)
    buckets = buckets_of(config)
    known = targets(buckets, benchmark)
    if not known and not target:
        return page(request, "no_skill.html", benchmark=benchmark, train_dag=train_dag_id(benchmark))
    target = target if target else known[0]
    if target not in known:
        return message_page(404, "No such skill", f"{benchmark} has no versions and no nights for {target}.")
    details = read_details(buckets, benchmark, target, number)
    champion, own = details.champion, connection_of(details.champion, config)
    _, number, last = paged(details.versions, number, VERSIONS)
    version, trained_by = (champion.alias.version, champion.manifest.run) if champion else ("", "")
    lines = champion_lines(benchmark, champion) if champion else []
    return page(
        request,
        "skill.html",
        plots=True,
        benchmark=benchmark,
        target=target,
        targets=known,
        details=details,
        champion=champion,
        night=details.nights[-1] if details.nights else None,
        chart=chart(details),
        diff=diff_between(buckets.published(benchmark, target), benchmark, details, before, after),
        choices=[*details.versions[:MAX_CHOICES], SEED],
        lines=lines,
        lines_left=champion.skill.removesuffix("\n").count("\n") + 1 - len(lines) if champion else 0,
        approvals=[(label, dag(benchmark)) for label, dag in APPROVALS],
        forms=forms_of(benchmark, target, version, trained_by, previous_champion(details), own),
        regate_dag=regate_dag_id(benchmark),
        train_dag=train_dag_id(benchmark),
        number=number,
        last=last,
        evaluate_dag=evaluate_dag_id(benchmark),
    )


def chart(details: "SkillDetails") -> str:
    if not details.nights:
        return ""
    from skillopt_airflow.report.plots import AliasEvent, nights_chart

    events = [AliasEvent(move.alias.moved, move.kind, move.alias.version) for move in details.moves]
    return nights_chart(details.nights, events[::-1])


def previous_champion(details: "SkillDetails") -> str:
    """Return the version of the previous champion; empty if the loaded moves don't contain it."""
    from skillopt_airflow.store.aliases import champion_before

    before = champion_before([move.alias for move in reversed(details.moves)])
    return "" if before is None else before.version


def connection_of(champion: "Champion | None", own: TrainConfig) -> JsonObject:
    """Return an override for the champion's target connection; empty if it is the benchmark's."""
    model = None if champion is None else champion.manifest.config.get("model")
    conn_id = model.get("target_conn_id") if isinstance(model, dict) else None
    return {} if conn_id in (None, own.model.target_conn_id) else {"model.target_conn_id": conn_id}


def diff_between(
    artifacts: "ArtifactStore", benchmark: str, details: "SkillDetails", before: str, after: str
) -> Diff | None:
    """Compare two versions, by default the champion with its predecessor; None without a version.

    Raises StoreError if a version was changed after it was published.
    """
    champion = details.champion
    after = after or (champion.alias.version if champion else next(iter(details.versions), ""))
    if not after:
        return None
    before = before or previous_champion(details) or SEED
    texts = []
    for name in (before, after):
        if name != SEED and name not in details.versions:
            return Diff(before, after, (), f"There is no version {name}.")
        text = _text(artifacts, benchmark, details, name)
        if text is None:
            return Diff(before, after, (), f"Version {name} was never completed.")
        if text.count("\n") > MAX_LINES:
            return Diff(before, after, (), f"{name} has more than {MAX_LINES:,} lines, too many to compare here.")
        texts.append(text)
    text = diff_of(*texts)
    lines = diff_lines(text[:MAX_DIFF_CHARS]) if text else []
    if len(text) > MAX_DIFF_CHARS:
        lines.append(("place", f"[{len(text) - MAX_DIFF_CHARS:,} characters left out]"))
    return Diff(before, after, lines, "")


def champion_lines(benchmark: str, champion: "Champion") -> list[SkillLine]:
    """Return the champion's first lines with their origins from the manifest."""

    def place(line: LineOrigin) -> tuple[str, str]:
        moment, run = readable_moment(line.moment), line.run or champion.manifest.run
        link = f"runs/{benchmark}/{run}/report#{slug_of(line.moment)}-edit-{line.edit}"
        return f"{moment} of run {line.run}" if line.run else moment, link

    return list(islice(skill_lines(champion.skill, champion.manifest.lines, place), MAX_LINES))


def _text(artifacts: "ArtifactStore", benchmark: str, details: "SkillDetails", version: str) -> str | None:
    """Return the text of a version, from `details` if possible; None if it was never completed."""
    from skillopt_airflow.training.report.skill_overview import read_version

    if version == SEED:
        return benchmarks.seed_skill(benchmark).read_text(encoding="utf-8")
    known = {row.version: row.published for row in details.rows}
    published = known[version] if version in known else read_version(artifacts, version)
    return None if published is None else published.skill
