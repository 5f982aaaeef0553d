"""Result tables, with the machine and the date."""

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

RESULTS = Path(__file__).parent / "results"

Cells = Sequence[object]


class Section(NamedTuple):
    title: str
    note: str
    header: Sequence[str]
    rows: Sequence[Cells]


def write(name: str, title: str, note: str, header: Sequence[str], rows: Sequence[Cells]) -> None:
    """Write and print `results/<name>.md`."""
    _write(name, title, [note, "", *_table(header, rows)])


def write_sections(name: str, title: str, note: str, sections: Sequence[Section], command: str = "make bench") -> None:
    """Write and print `results/<name>.md` with several tables; `command` recreates it."""
    parts = (["", f"## {one.title}", "", one.note, "", *_table(one.header, one.rows)] for one in sections)
    _write(name, title, [note, *(line for part in parts for line in part)], command)


def _write(name: str, title: str, body: Sequence[str], command: str = "make bench") -> None:
    lines = [
        f"# {title}",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, Python {platform.python_version()}, Airflow "
        f"{version('apache-airflow')}. `{command}` writes this file.",
        "",
        *body,
        "",
    ]
    text = "\n".join(lines)
    (RESULTS / f"{name}.md").write_text(text, encoding="utf-8")
    print(text)


def _table(header: Sequence[str], rows: Sequence[Cells]) -> list[str]:
    return [_row(header), _row(["---"] * len(header)), *(_row([str(cell) for cell in row]) for row in rows)]


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
