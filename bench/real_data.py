"""The folder of the benchmarks' real items, which are no part of the project.

Each benchmark's README says where they come from. The folder has `searchqa/train.json`, the 400 training items of the
split that the paper's authors publish, `mathverse/text_only.json`, `alfworld/games.tar.gz`,
`swebench/runnable/prepare.py`, which writes instance folders into the folder that it is given, and the folders
`livemathematicianbench` and `spreadsheetbench`.
"""

import os
from pathlib import Path

from local.home import PROJECT
from skillopt_airflow.core.errors import DataError

REAL_DATA = Path(os.environ.get("SKILLOPT_DATA", PROJECT.parent / "shared" / "data"))
SEARCHQA = REAL_DATA / "searchqa" / "train.json"
ABSENT = f"no real items at {REAL_DATA}: SKILLOPT_DATA names their folder"


def need_searchqa() -> None:
    """Raises DataError if SearchQA's items are not there."""
    if not SEARCHQA.is_file():
        raise DataError(f"{SEARCHQA} is missing: {ABSENT}")
