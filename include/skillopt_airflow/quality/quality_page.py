"""The results of a run's suites as one page that needs nothing else: no script, no request, every text escaped.

Great Expectations renders such pages too (data docs), from scripts and styles of servers elsewhere.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from skillopt_airflow.quality.quality_report import QualityReport

TEMPLATES = Path(__file__).parent / "templates"
ROWS_SHOWN = 500
"""Failing rows of one expectation that the page shows; the JSON beside it has all."""
# Control characters have no picture in a browser: the page shows their symbols instead.
_VISIBLE = {code: 0x2400 + code for code in range(0x20)} | {0x7F: 0x2421}


def render(benchmark: str, run: str, reports: Sequence[QualityReport]) -> str:
    """Return the page; equal reports give equal pages."""
    environment = Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_visible,
    )
    return environment.get_template("quality.html").render(
        benchmark=benchmark, run=run, reports=reports, shown=ROWS_SHOWN, titles=_TITLES
    )


_TITLES = {"records": "Records", "rollouts": "Rollouts"}


def _visible(value: Any) -> Any:
    return value.translate(_VISIBLE) if type(value) is str else value
