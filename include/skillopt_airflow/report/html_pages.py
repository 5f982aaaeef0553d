"""Rendering of pages in which every text from data is escaped, and hidden characters are shown."""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from skillopt_airflow.core.failure_reasons import share
from skillopt_airflow.core.hidden_text import Shown
from skillopt_airflow.quality.quality_report import QualityReport
from skillopt_airflow.report import summary

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
    shown = Shown(kept)

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
