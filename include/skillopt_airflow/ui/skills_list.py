"""The page of all skills: each benchmark and target with its champion and its newest night."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Annotated, NamedTuple

from airflow.sdk.exceptions import AirflowException
from fastapi import Query, Request
from fastapi.responses import HTMLResponse

from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.errors import SkillOptError
from skillopt_airflow.pipeline.addresses import UI_PREFIX
from skillopt_airflow.pipeline.dag_ids import regate_dag_id, train_dag_id
from skillopt_airflow.report.html_pages import sparkline
from skillopt_airflow.training.benchmark_settings import benchmark_config
from skillopt_airflow.ui.access import Readable
from skillopt_airflow.ui.pages import app, page

if TYPE_CHECKING:
    from skillopt_airflow.training.skill_overview import Buckets, SkillOverview

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


class Line(NamedTuple):
    """A line of the list."""

    benchmark: str
    target: str = ""
    """Empty where the benchmark has neither published skills nor nights."""
    problem: str = ""
    """Why the benchmark, or the skill, cannot be read."""
    skill: "SkillOverview | None" = None
    """None until it is read."""

    @property
    def train_dag(self) -> str:
        """The DAG whose form makes a first skill."""
        return train_dag_id(self.benchmark)

    @property
    def regate_dag(self) -> str:
        """The DAG of the nights."""
        return regate_dag_id(self.benchmark)

    @property
    def evidence(self) -> str:
        """The evidence of a decline in words; empty without nights."""
        if self.skill is None or not self.skill.nights:
            return ""
        last = self.skill.nights[-1]
        return f"CUSUM {last.decline:.1f}, alarm at {last.judgement.alarm:.1f}"

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
    q: Annotated[str, Query(max_length=MOST_QUERY)] = "",
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
    """Return whether every word of the query is in the names of benchmark and target."""
    names = f"{line.benchmark} {line.target}".casefold()
    return all(word in names for word in query.casefold().split())


def buckets_of(config: TrainConfig) -> "Buckets":
    """Return where a benchmark's runs and skills are.

    Raises:
        ConfigError: Airflow has no connection of this name.
    """
    from skillopt_airflow.training.skill_overview import Buckets
    from skillopt_airflow.ui.buckets import open_bucket

    storage = config.storage
    return Buckets(open_bucket(storage, storage.bucket), open_bucket(storage, storage.artifact_bucket), storage.prefix)


def _lines(benchmark: str) -> Sequence[Line]:
    """Return a line for every target of a benchmark, or one that says that there is none, or why that is not known."""
    from skillopt_airflow.training.skill_overview import targets

    try:
        found = targets(buckets_of(benchmark_config(benchmark)), benchmark)
    except (SkillOptError, AirflowException) as error:
        return [Line(benchmark, problem=str(error))]
    return [Line(benchmark, target) for target in found] if found else [Line(benchmark)]


def _read(line: Line) -> Line:
    from skillopt_airflow.training.skill_overview import overview

    if not line.target:
        return line
    try:
        buckets = buckets_of(benchmark_config(line.benchmark))
        return line._replace(skill=overview(buckets, line.benchmark, line.target))
    except SkillOptError as error:
        return line._replace(problem=str(error))
