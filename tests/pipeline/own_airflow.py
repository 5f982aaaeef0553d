"""A process with an Airflow of its own, which has a database in a file and no service that runs."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.training.in_process import PROJECT


def dags_of(tmp_path: Path, file: str) -> Path:
    """A folder of DAG files, of which there is one, with this text."""
    dags = tmp_path / "dags"
    dags.mkdir()
    (dags / "only.py").write_text(file)
    return dags


def printed(probe: str, dags: Path, *arguments: str, **variables: str) -> Any:
    """The JSON in the last line of what tests.pipeline.<probe> prints, given a folder of DAG files."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW_")}
    airflow = {
        "AIRFLOW_HOME": str(dags.parent),
        "AIRFLOW__CORE__DAGS_FOLDER": str(dags),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "PYTHONPATH": os.pathsep.join([str(PROJECT / "include"), str(PROJECT)]),
    }
    command = [sys.executable, "-m", f"tests.pipeline.{probe}", str(dags), *arguments]
    done = subprocess.run(command, env=own | airflow | variables, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])
