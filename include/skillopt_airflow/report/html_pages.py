"""Pages and drawings in which every text from data is escaped, and hidden characters are shown."""

from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from skillopt_airflow.core.values.failure_reasons import share
from skillopt_airflow.core.values.text import VisibleCharacters
from skillopt_airflow.quality.quality_report import QualityReport
from skillopt_airflow.report import summary

WIDTH, HEIGHT, MARGIN = 132, 30, 3
"""In units of the drawing, which a page shows as pixels."""
ROOM = 1.1
"""How far above the limit the drawing reaches, as a factor."""


def sparkline(values: Sequence[float], limit: float, described: str) -> str:
    """Return the values as a line from 0 to above a dashed limit; what is below 0 lies on 0.

    Args:
        values: at least one, in their order.
        limit: above 0.
        described: says the same in words.
    """
    top = max(limit * ROOM, *values)
    step = (WIDTH - 2 * MARGIN) / max(1, len(values) - 1)
    points = [(MARGIN + step * place, _height(value, top)) for place, value in enumerate(values)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    x, y = points[-1]
    reached = " reached" if values[-1] >= limit else ""
    return (
        f'<svg class="spark{reached}" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="{escape(described)}"><line class="limit" x1="0" x2="{WIDTH}" y1="{_height(limit, top):.1f}" '
        f'y2="{_height(limit, top):.1f}" /><polyline points="{line}" />'
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" /></svg>'
    )


def _height(value: float, top: float) -> float:
    return HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * max(0.0, value) / top


TEMPLATES = Path(__file__).parent / "templates"
STYLESHEET = TEMPLATES / "pages.css"
"""The look of the reports, which carry it, and of the pages of the plugin, which link it."""


def html_environment(kept: str = "", folders: Sequence[Path] = ()) -> Environment:
    """Return an environment whose templates escape everything and show hidden characters, except for `kept`.

    Its filters show numbers as all pages do.

    Args:
        kept: control characters that a page writes as they are, such as line breaks.
        folders: where templates are looked for before the folder of the reports.
    """
    shown = VisibleCharacters(kept)

    def visible(value: Any) -> Any:
        # Exactly str: a template's own macros give Markup, which is escaped already and stays what it is.
        return value.translate(shown) if type(value) is str else value

    environment = Environment(
        loader=FileSystemLoader([*folders, TEMPLATES]),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=visible,
    )
    environment.filters |= {
        "share": share,
        "score": summary.score,
        "signed": summary.signed,
        "usd": summary.usd,
        "duration": summary.duration,
    }
    return environment


ROWS_SHOWN = 500
"""Failing rows of one expectation that the page shows; the JSON beside it has all."""
TITLES = {"records": "Records", "rollouts": "Rollouts"}


def render(benchmark: str, run: str, reports: Sequence[QualityReport]) -> str:
    """Return the page; equal reports give equal pages."""
    return _template().render(benchmark=benchmark, run=run, reports=reports, shown=ROWS_SHOWN, titles=TITLES)


@cache
def _template() -> Template:
    """Return the compiled template; compiling takes longer than filling it in."""
    return html_environment().get_template("quality.html")
