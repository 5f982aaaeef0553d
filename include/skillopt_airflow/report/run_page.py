"""A run's report as a page."""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

from jinja2 import Template

from skillopt_airflow.core.gate.decision import Action, GateDecision
from skillopt_airflow.core.values.skill import SkillDocument, length_warning
from skillopt_airflow.report import plots, summary
from skillopt_airflow.report.html_pages import html_environment
from skillopt_airflow.report.view import ReportView, diff_lines, origin_detail, slug_of, spoken_moment

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
"""Begins the outcome on the page."""


class VerdictSign(NamedTuple):
    """The gate's verdict as the page names it; the symbols are those of the learning curve, as far as it is there."""

    symbol: str
    name: str
    css: str


class SkillLine(NamedTuple):
    """A line of the skill and where it comes from."""

    number: int
    text: str
    origin: str
    href: str
    """Link to that edit on the page; empty for a line of the seed, or of an import."""
    detail: str
    opens: bool
    """True if the line before has another origin."""


def render(view: ReportView) -> str:
    return _template().render(layout="page.html", **page_values(view))


def page_values(view: ReportView, estimate: object = None) -> dict[str, Any]:
    """Return everything that the template takes, except the layout that it extends."""
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
    """Return a page of before that has the view's outcome, and otherwise stays what it is."""
    before, lead, rest = page.partition(LEAD)
    told = _template().environment.from_string("{{ outcome }}").render(outcome=summary.outcome(view))
    return f"{before}{lead}{told}</p>{rest.partition('</p>')[2]}" if lead else page


@cache
def _template() -> Template:
    """Return the compiled template; compiling takes longer than filling it in."""
    return html_environment(kept="\t\n").get_template("report.html")


def verdict(decision: GateDecision) -> VerdictSign:
    """Return the page's name and symbol for the gate's verdict."""
    action = decision.action
    if decision.memory_only:
        return VerdictSign(NO_CANDIDATE, "memory only", "")
    if decision.bound is not None:
        return VerdictSign(EARLY, "rejected early", action.value)
    return VerdictSign(SYMBOLS[action], plots.MARKS[action].name, action.value)


def skill_lines(view: ReportView) -> Iterator[SkillLine]:
    """Return the skill's lines; there is none after the final newline."""
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
            origin, href = f"{spoken_moment(line.moment)} of run {line.run}", ""
        detail = origin_detail(line.op, line.minibatches)
        opens = before != (line.run, line.moment, line.edit)
        before = (line.run, line.moment, line.edit)
        yield SkillLine(number=number, text=text, origin=origin, href=href, detail=detail, opens=opens)
