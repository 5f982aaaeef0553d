"""Rendering of pages in which every text from data is escaped, and characters without a picture are shown."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from skillopt_airflow.core.failure_reasons import share
from skillopt_airflow.report import summary

TEMPLATES = Path(__file__).parent / "templates"
STYLESHEET = TEMPLATES / "pages.css"
"""The look of the reports, which carry it, and of the pages of the plugin, which link it."""
NAMED = (*range(0x80, 0xA0), 0x61C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
"""Characters without a picture: controls, and what would turn the direction of the text around it."""
SURROGATES = range(0xD800, 0xE000)
"""Halves of characters, which no page can be encoded with."""
SYMBOLS: dict[int, int | str] = {
    **{code: 0x2400 + code for code in range(0x20)},
    0x7F: 0x2421,
    **{code: f"[U+{code:04X}]" for code in NAMED},
    **dict.fromkeys(SURROGATES, 0xFFFD),
}
"""What a page shows instead: control characters have symbols of their own."""


def html_environment(kept: str = "", folders: Sequence[Path] = ()) -> Environment:
    """Return an environment whose templates escape everything and show control characters, except for `kept`.

    Its filters show numbers as all pages do.

    Args:
        kept: control characters that a page writes as they are, such as line breaks.
        folders: where templates are looked for before the folder of the reports.
    """
    symbols = {code: symbol for code, symbol in SYMBOLS.items() if chr(code) not in kept}

    def visible(value: Any) -> Any:
        # Exactly str: a template's own macros give Markup, which is escaped already and stays what it is.
        return value.translate(symbols) if type(value) is str else value

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
