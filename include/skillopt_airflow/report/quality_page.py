"""The results of a run's data quality suites as a page.

Great Expectations renders such pages too (data docs), from scripts and styles of servers elsewhere.
"""

from collections.abc import Sequence
from functools import cache

from jinja2 import Template

from skillopt_airflow.quality.quality_report import QualityReport
from skillopt_airflow.report.html_pages import html_environment

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
