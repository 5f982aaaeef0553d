"""The folder with the benchmarks' real items, which aren't part of the project.

Each benchmark's README has their source. The folder has `searchqa/train.json`, the 400 training items of the
split published by the paper's authors, `mathverse/text_only.json`, `alfworld/games.tar.gz`,
`swebench/runnable/prepare.py`, which writes instance folders into a given folder, and the folders
`livemathematicianbench` and `spreadsheetbench`.
"""

import os
from pathlib import Path

from local.home import PROJECT
from skillopt_airflow.core.errors import DataError

REAL_DATA = Path(os.environ.get("SKILLOPT_DATA", PROJECT.parent / "shared" / "data"))
SEARCHQA = REAL_DATA / "searchqa" / "train.json"
ABSENT = f"no real items at {REAL_DATA}. Set SKILLOPT_DATA to their folder"


def need_searchqa() -> None:
    """Raise DataError if SearchQA's items are missing."""
    if not SEARCHQA.is_file():
        raise DataError(f"{SEARCHQA} is missing: {ABSENT}")
