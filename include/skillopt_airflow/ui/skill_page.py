"""The list of skills, and the page of one: what it says and why, its versions, what nights found, what can be done."""

import json
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

from airflow.sdk.exceptions import AirflowException
from fastapi import Depends, Query, Request
from fastapi.responses import HTMLResponse

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import SkillOptError
from skillopt_airflow.core.values.skill import diff_of
from skillopt_airflow.pipeline.tasks.addresses import UI_PREFIX
from skillopt_airflow.pipeline.tasks.dag_ids import (
    evaluate_dag_id,
    publish_dag_id,
    regate_dag_id,
    rollback_dag_id,
    train_dag_id,
)
from skillopt_airflow.report.html_pages import sparkline
from skillopt_airflow.report.view import diff_lines, origin_detail, slug_of, spoken_moment
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config
from skillopt_airflow.ui.access import Readable, may_read
from skillopt_airflow.ui.pages import app, message_page, page

if TYPE_CHECKING:
    from skillopt_airflow.core.values.provenance import LineOrigin
    from skillopt_airflow.core.values.types import JsonObject
    from skillopt_airflow.store.artifacts import ArtifactStore
    from skillopt_airflow.training.report.skill_overview import Buckets, Champion, SkillDetails, SkillOverview

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
MAX_QUERY_CHARS = 200


class Line(NamedTuple):
    benchmark: str
    target: str = ""
    """Empty where the benchmark has neither published skills nor nights."""
    problem: str = ""
    """Why the benchmark, or the skill, cannot be read."""
    skill: "SkillOverview | None" = None
    """None until it is read."""

    @property
    def train_dag(self) -> str:
        return train_dag_id(self.benchmark)

    @property
    def regate_dag(self) -> str:
        return regate_dag_id(self.benchmark)

    @property
    def evidence(self) -> str:
        if self.skill is None or not self.skill.nights:
            return ""
        last = self.skill.nights[-1]
        return f"CUSUM {last.decline:.1f}, alarm at {last.judgement.alarm:.1f}"

    @property
    def spark(self) -> str:
        if self.skill is None or not self.skill.nights:
            return ""
        nights = self.skill.nights
        described = f"Evidence of a decline over {len(nights)} nights; now {self.evidence}."
        return sparkline([night.decline for night in nights], nights[-1].judgement.alarm, described)


@app.get("/skills")
def skills(
    request: Request,
    readable: Readable,
    q: Annotated[str, Query(max_length=MAX_QUERY_CHARS)] = "",
    number: Annotated[int, Query(alias="page", ge=1, le=100_000)] = 1,
) -> HTMLResponse:
    """Return a page of the list: of the benchmarks that the user may read, those with the words `q` in their names."""
    with ThreadPoolExecutor(THREADS) as pool:
        # What there is to see before what there is to do.
        lines = sorted((line for found in pool.map(_lines, readable) for line in found), key=lambda one: not one.target)
        wanted = [line for line in lines if matches(line, q)]
        last = max(1, -(-len(wanted) // LINES))
        shown = list(pool.map(_read, wanted[(min(number, last) - 1) * LINES :][:LINES]))
    return page(
        request,
        "skills.html",
        lines=shown,
        query=q,
        total=sum(1 for line in lines if line.target),
        found=len(wanted),
        readable=len(readable),
        number=min(number, last),
        last=last,
    )


def matches(line: Line, query: str) -> bool:
    names = f"{line.benchmark} {line.target}".casefold()
    return all(word in names for word in query.casefold().split())


def buckets_of(config: TrainConfig) -> "Buckets":
    """Return where a benchmark's runs and skills are.

    Raises:
        ConfigError: Airflow has no connection of this name.
    """
    from skillopt_airflow.training.report.skill_overview import Buckets
    from skillopt_airflow.ui.buckets import open_bucket

    storage = config.storage
    return Buckets(open_bucket(storage, storage.bucket), open_bucket(storage, storage.artifact_bucket), storage.prefix)


def _lines(benchmark: str) -> Sequence[Line]:
    """Return a line for every target of a benchmark, or one that says that there is none, or why that is not known."""
    from skillopt_airflow.training.report.skill_overview import targets

    try:
        found = targets(buckets_of(benchmark_config(benchmark)), benchmark)
    except (SkillOptError, AirflowException) as error:
        return [Line(benchmark, problem=str(error))]
    return [Line(benchmark, target) for target in found] if found else [Line(benchmark)]


def _read(line: Line) -> Line:
    from skillopt_airflow.training.report.skill_overview import overview

    if not line.target:
        return line
    try:
        buckets = buckets_of(benchmark_config(line.benchmark))
        return line._replace(skill=overview(buckets, line.benchmark, line.target))
    except SkillOptError as error:
        return line._replace(problem=str(error))


class FilledForm(NamedTuple):
    name: str
    what: str
    """What it does."""
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
    """Return what can be done with a skill.

    Args:
        benchmark: its benchmark.
        target: its model.
        champion: its version; empty if there is none, so that nothing can be done with it.
        trained_by: the run that trained it.
        back_to: the champion that it followed; empty if there is none.
        overrides: knobs that runs with its model need besides the model's name.
    """
    if not champion:
        return []
    more = {"overrides": overrides} if overrides else {}
    forms = [
        FilledForm(
            "Evaluate",
            f"Scores the champion and {back_to or 'the seed skill'} on the test split, with intervals. Add models to "
            "targets, or programs to harnesses, to compare the skills there as well.",
            evaluate_dag_id(benchmark),
            {
                "skills": [back_to or "seed", champion],
                "targets": [target],
                "overrides": {"model.target": target, **overrides},
            },
        ),
        FilledForm(
            "Re-gate",
            "Runs a night: champion, the one before it and the seed on that night's fresh items. Give the form a "
            "logical date shortly after the night's end, such as 00:01 of the next day; midnight itself belongs to the "
            "run that the schedule makes for another night.",
            regate_dag_id(benchmark),
            {"target": target, **more},
        ),
        FilledForm(
            "Publish for another model",
            "Measures the skill of the same training on another target model, and publishes it there if it passes the "
            "gate. Put the model's name into the form.",
            publish_dag_id(benchmark),
            {"run": trained_by, "target": "provider:model"},
        ),
    ]
    if back_to:
        forms.append(
            FilledForm(
                "Roll back",
                f"Moves the champion back to {back_to}, after an approval.",
                rollback_dag_id(benchmark),
                {"version": back_to, "reason": "", "leaving": champion, "model.target": target, **more},
            )
        )
    return forms


SEED = "seed"
"""Names the seed skill among the versions."""
ASKING = (("trainings", train_dag_id), ("publications", publish_dag_id), ("rollbacks", rollback_dag_id))
"""What may wait for an approval, and the DAG that asks."""
MAX_LINES = 500
"""Lines of a skill that are compared, or shown with their origins."""
MAX_DIFF_CHARS = 100_000
MAX_CHOICES = 300
"""Versions that can be chosen for a comparison, the newest ones; the address can name any."""
MAX_NAME = 300


class OriginLine(NamedTuple):
    number: int
    text: str
    origin: str
    """Empty where it is that of the line before."""
    href: str
    """The edit in the report of the run, below the pages of this app; empty for a line of the seed, or of an import."""
    detail: str


class Diff(NamedTuple):
    before: str
    after: str
    lines: Sequence[tuple[str, str]]
    """Each with its class in the stylesheet."""
    problem: str
    """Why there is none; empty if there is."""


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
        return message_page(404, "No such skill", f"{benchmark} has neither versions nor nights for that model.")
    details = read_details(buckets, benchmark, target, number)
    champion, last = details.champion, max(1, -(-len(details.versions) // VERSIONS))
    version, trained_by = (champion.alias.version, champion.manifest.run) if champion else ("", "")
    lines, own = champion_lines(benchmark, details), connection_of(champion, config)
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
        asking=[(what, dag(benchmark)) for what, dag in ASKING],
        forms=forms_of(benchmark, target, version, trained_by, followed(details), own),
        regate_dag=regate_dag_id(benchmark),
        train_dag=train_dag_id(benchmark),
        number=min(number, last),
        last=last,
        evaluate_dag=evaluate_dag_id(benchmark),
    )


def chart(details: "SkillDetails") -> str:
    if not details.nights:
        return ""
    from skillopt_airflow.report.plots import AliasEvent, nights_chart

    events = [AliasEvent(move.alias.moved, move.kind, move.alias.version) for move in details.moves]
    return nights_chart(details.nights, events[::-1])


def followed(details: "SkillDetails") -> str:
    """Return the champion that the present one followed; empty if none of the moves that are read tells."""
    from skillopt_airflow.store.aliases import champion_before

    before = champion_before([move.alias for move in reversed(details.moves)])
    return "" if before is None else before.version


def connection_of(champion: "Champion | None", own: TrainConfig) -> "JsonObject":
    """Return the knob that names the connection of the champion's target; empty where it is the benchmark's own."""
    model = None if champion is None else champion.manifest.config.get("model")
    conn_id = model.get("target_conn_id") if isinstance(model, dict) else None
    return {} if conn_id in (None, own.model.target_conn_id) else {"model.target_conn_id": conn_id}


def diff_between(
    artifacts: "ArtifactStore", benchmark: str, details: "SkillDetails", before: str, after: str
) -> Diff | None:
    """Return what changed from one version to another; without names, what the champion changed.

    None where there is nothing to compare.

    Raises:
        StoreError: a version was changed after it was published.
    """
    champion = details.champion
    after = after or (champion.alias.version if champion else next(iter(details.versions), ""))
    if not after:
        return None
    before = before or followed(details) or SEED
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


def champion_lines(benchmark: str, details: "SkillDetails") -> list[OriginLine]:
    """Return the champion's first lines with what wrote each, as its manifest has it."""
    champion, lines, before = details.champion, [], None
    if champion is None:
        return []
    texts, origins = champion.skill.removesuffix("\n").split("\n"), champion.manifest.lines
    for place, text in enumerate(texts[:MAX_LINES]):
        found = _origin(benchmark, champion.manifest.run, origins[place] if place < len(origins) else None)
        lines.append(OriginLine(place + 1, text, *(found if found != before else ("", "", ""))))
        before = found
    return lines


def _origin(benchmark: str, run: str, origin: "LineOrigin | None") -> tuple[str, str, str]:
    """Return what wrote a line, the address of that edit, and more about it."""
    if origin is None:
        return "not known", "", ""
    wrote, own = origin.run or run, not origin.run
    if origin.edit is None:
        return "seed", "", ""
    moment = spoken_moment(origin.moment)
    said = moment if own else f"{moment} of run {wrote}"
    address = f"runs/{benchmark}/{wrote}/report#{slug_of(origin.moment)}-edit-{origin.edit}"
    return said, address, origin_detail(origin.op, origin.minibatches)


def _text(artifacts: "ArtifactStore", benchmark: str, details: "SkillDetails", version: str) -> str | None:
    """Return the text of a version, which may have been read already; None of one that was never completed."""
    from skillopt_airflow.training.report.skill_overview import read_version

    if version == SEED:
        return benchmarks.seed_skill(benchmark).read_text(encoding="utf-8")
    known = {row.version: row.published for row in details.rows}
    published = known[version] if version in known else read_version(artifacts, version)
    return None if published is None else published.skill
