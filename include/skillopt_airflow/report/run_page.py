"""The report of a run as an HTML page."""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from jinja2 import Template

from skillopt_airflow.core.gate.decision import Action, GateDecision
from skillopt_airflow.core.values.skill import SkillDocument, length_warning
from skillopt_airflow.report import plots, summary
from skillopt_airflow.report.html_pages import html_environment
from skillopt_airflow.report.view import ReportView, diff_lines, origin_detail, readable_moment, slug_of

SYMBOLS = {
    Action.ACCEPT_NEW_BEST: "★",
    Action.ACCEPT: "●",
    Action.REJECT: "✕",
    Action.INDECISIVE: "◇",
    Action.UNDERPOWERED: "□",
}
EARLY = "▽"
NO_CANDIDATE = "–"
LEAD = '<p class="lead">'
"""Start of the outcome paragraph."""


class VerdictSign(NamedTuple):
    """Symbol, name, and CSS class of a gate verdict."""

    symbol: str
    name: str
    css: str


class SkillLine(NamedTuple):
    number: int
    text: str
    origin: str
    href: str
    """Link to the edit on the page; empty for lines of the seed and of other runs."""
    detail: str
    opens: bool
    """True if the previous line has another origin."""


def render(view: ReportView) -> str:
    return _template().render(layout="page.html", **page_values(view))


def page_values(view: ReportView, estimate: object = None) -> dict[str, Any]:
    """Return all values of the template except `layout`."""
    return {
        "view": view,
        "estimate": estimate,
        "outcome": summary.outcome(view),
        "cuts": summary.cuts(view),
        "length": length_warning(SkillDocument(view.skill)),
        "gained": summary.points_gained(view),
        "independence": summary.independence(view),
        "total": summary.total(view.costs),
        "limits": summary.limits(view),
        "seconds": summary.total_seconds(moment.seconds for moment in view.moments),
        "skill_lines": list(skill_lines(view)),
        "learning_curve": plots.learning_curve(view),
        "costs": plots.costs(view.costs) if view.costs else "",
        "verdict": verdict,
        "diff_lines": diff_lines,
        "slug": slug_of,
    }


def with_outcome(page: str, view: ReportView) -> str:
    """Return a stored page with its outcome paragraph replaced by the view's."""
    before, lead, rest = page.partition(LEAD)
    text = _template().environment.from_string("{{ outcome }}").render(outcome=summary.outcome(view))
    return f"{before}{lead}{text}</p>{rest.partition('</p>')[2]}" if lead else page


@cache
def _template() -> Template:
    """Cached, because compiling a template takes longer than rendering it."""
    return html_environment(allowed="\t\n").get_template("report.html")


def verdict(decision: GateDecision) -> VerdictSign:
    action = decision.action
    if decision.memory_only:
        return VerdictSign(NO_CANDIDATE, "memory only", "")
    if decision.bound is not None:
        return VerdictSign(EARLY, "rejected early", action.value)
    return VerdictSign(SYMBOLS[action], plots.MARKS[action].name, action.value)


def skill_lines(view: ReportView) -> Iterator[SkillLine]:
    moments = {moment.name: moment for moment in view.moments}
    texts = view.skill.removesuffix("\n").split("\n")
    before: tuple[str, str, int | None] | None = None
    for number, (text, line) in enumerate(zip(texts, view.lines, strict=False), start=1):
        moment = moments.get(line.moment)
        origin = moment.label if moment is not None else line.moment
        href = ""
        if moment is not None and line.edit is not None:
            href = f"#{slug_of(moment.name)}-edit-{line.edit}"
        if line.edit is None:
            origin = "seed"
        elif line.run:
            origin, href = f"{readable_moment(line.moment)} of run {line.run}", ""
        detail = origin_detail(line.op, line.minibatches)
        opens = before != (line.run, line.moment, line.edit)
        before = (line.run, line.moment, line.edit)
        yield SkillLine(number=number, text=text, origin=origin, href=href, detail=detail, opens=opens)
