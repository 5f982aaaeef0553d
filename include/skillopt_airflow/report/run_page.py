"""The report of a run as an HTML page."""

from typing import Any, NamedTuple

from jinja2 import Environment

from skillopt_airflow.core.gate.decision import Action, GateDecision
from skillopt_airflow.core.values.provenance import LineOrigin
from skillopt_airflow.core.values.skill import SkillDocument, length_warning
from skillopt_airflow.report import plots, summary
from skillopt_airflow.report.html_pages import html_environment
from skillopt_airflow.report.view import ReportView, diff_lines, readable_moment, skill_lines, slug_of

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


def render(view: ReportView) -> str:
    return _environment().get_template("report.html").render(layout="page.html", **page_values(view))


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
        "skill_lines": list(skill_lines(view.skill, view.lines, _place)),
        "learning_curve": plots.learning_curve(view),
        "costs": plots.costs(view.costs) if view.costs else "",
        "verdict": verdict,
        "diff_lines": diff_lines,
        "slug": slug_of,
    }


def with_outcome(page: str, view: ReportView) -> str:
    """Return a stored page with its outcome paragraph replaced by the view's."""
    before, lead, rest = page.partition(LEAD)
    text = _environment().from_string("{{ outcome }}").render(outcome=summary.outcome(view))
    return f"{before}{lead}{text}</p>{rest.partition('</p>')[2]}" if lead else page


def _environment() -> Environment:
    return html_environment(allowed="\t\n")


def verdict(decision: GateDecision) -> VerdictSign:
    action = decision.action
    if decision.memory_only:
        return VerdictSign(NO_CANDIDATE, "memory only", "")
    if decision.bound is not None:
        return VerdictSign(EARLY, "rejected early", action.value)
    return VerdictSign(SYMBOLS[action], plots.MARKS[action].name, action.value)


def _place(line: LineOrigin) -> tuple[str, str]:
    """Return the name of an edit's moment, and the link to the edit; edits of other runs aren't on the page."""
    moment = readable_moment(line.moment)
    if line.run:
        return f"{moment} of run {line.run}", ""
    return moment.capitalize(), f"#{slug_of(line.moment)}-edit-{line.edit}"
