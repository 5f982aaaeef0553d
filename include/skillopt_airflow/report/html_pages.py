"""HTML pages and sparklines that escape all data and show hidden characters."""

from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from skillopt_airflow.core.values.failure_reasons import share
from skillopt_airflow.core.values.text import VisibleCharacters
from skillopt_airflow.quality.quality_report import QualityReport
from skillopt_airflow.report import summary

WIDTH, HEIGHT, MARGIN = 132, 30, 3
"""Pixels."""
HEADROOM = 1.1
"""Top of the drawing as a multiple of the limit."""


def sparkline(values: Sequence[float], limit: float, description: str) -> str:
    """Return an SVG line of at least one value, with a dashed line at the limit; negative values are drawn at 0.

    `description` is the text alternative. The limit must be positive.
    """
    top = max(limit * HEADROOM, *values)
    step = (WIDTH - 2 * MARGIN) / max(1, len(values) - 1)
    points = [(MARGIN + step * place, _height(value, top)) for place, value in enumerate(values)]
    line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    x, y = points[-1]
    reached = " reached" if values[-1] >= limit else ""
    return (
        f'<svg class="spark{reached}" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
        f'aria-label="{escape(description)}"><line class="limit" x1="0" x2="{WIDTH}" y1="{_height(limit, top):.1f}" '
        f'y2="{_height(limit, top):.1f}" /><polyline points="{line}" />'
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.5" /></svg>'
    )


def _height(value: float, top: float) -> float:
    return HEIGHT - MARGIN - (HEIGHT - 2 * MARGIN) * max(0.0, value) / top


TEMPLATES = Path(__file__).parent / "templates"
STYLESHEET = TEMPLATES / "pages.css"
"""Embedded in reports, linked by the pages of the plugin."""


@cache
def html_environment(allowed: str = "", *folders: Path) -> Environment:
    """Return an environment whose templates escape everything and show hidden characters but the `allowed` ones.

    The `folders` of templates come before that of the reports.
    """
    shown = VisibleCharacters(allowed)

    def visible(value: Any) -> Any:
        # Exactly str: macros return Markup, which is already escaped.
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
        "label": label,
    }
    return environment


def label(code: str) -> str:
    """Return a status or verdict as words."""
    return code.replace("_", " ")


ROWS_SHOWN = 500
"""Failing rows that the page shows per expectation; the JSON file next to it has all of them."""
TITLES = {"records": "Records", "rollouts": "Rollouts"}


def render(benchmark: str, run: str, reports: Sequence[QualityReport]) -> str:
    template = html_environment().get_template("quality.html")
    return template.render(benchmark=benchmark, run=run, reports=reports, shown=ROWS_SHOWN, titles=TITLES)
