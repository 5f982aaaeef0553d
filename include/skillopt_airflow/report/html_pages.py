"""Rendering of pages that need nothing else: no script, no request, and every text from data escaped."""

from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

TEMPLATES = Path(__file__).parent / "templates"
SYMBOLS = {code: 0x2400 + code for code in range(0x20)} | {0x7F: 0x2421}
"""Control characters have no picture in a browser, so a page shows their symbols instead."""


def html_environment(kept: str = "") -> Environment:
    """Return an environment whose templates escape everything and show control characters, except for `kept`."""
    symbols = {code: symbol for code, symbol in SYMBOLS.items() if chr(code) not in kept}

    def visible(value: Any) -> Any:
        # Exactly str: a template's own macros give Markup, which is escaped already and stays what it is.
        return value.translate(symbols) if type(value) is str else value

    return Environment(
        loader=FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=visible,
    )
