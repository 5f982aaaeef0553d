"""Result tables, with the machine and the date."""

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

RESULTS = Path(__file__).parent / "results"


def write(name: str, title: str, note: str, header: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Write and print `results/<name>.md`."""
    lines = [
        f"# {title}",
        "",
        f"{datetime.now(UTC):%Y-%m-%d}, {os.cpu_count()} cores, Python {platform.python_version()}, Airflow "
        f"{version('apache-airflow')}. `make bench` writes this file.",
        "",
        note,
        "",
        _row(header),
        _row(["---"] * len(header)),
        *(_row([str(cell) for cell in row]) for row in rows),
        "",
    ]
    text = "\n".join(lines)
    (RESULTS / f"{name}.md").write_text(text, encoding="utf-8")
    print(text)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
