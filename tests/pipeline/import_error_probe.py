"""For a process with an Airflow of its own: the DAG processor reads a DAG folder once for each change of a file.

Arguments: the folder, the file, and the texts that it gets one after the other. Prints, as JSON and for each text,
Airflow's import errors by file, and the DAGs by whether Airflow runs them.
"""

import gc
import json
import os
import sys
from pathlib import Path

from airflow import settings
from airflow.__main__ import main as airflow
from airflow.cli.commands import dag_processor_command  # noqa: F401 - not once in each fork
from airflow.models.dag import DagModel
from airflow.models.errors import ParseImportError
from airflow.utils.db import initdb
from airflow.utils.session import create_session
from sqlalchemy import select


def read_folder() -> None:
    """Read it in a fork, since importing Airflow takes longer than that."""
    settings.dispose_orm()
    settings.configure_orm()
    gc.freeze()
    child = os.fork()
    if child == 0:
        # What Airflow prints is no part of the answer.
        os.dup2(2, 1)
        sys.argv = ["airflow", "dag-processor", "--num-runs", "1"]
        airflow()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


if __name__ == "__main__":
    initdb()
    seen = []
    for text in sys.argv[3:]:
        Path(sys.argv[2]).write_text(text)
        read_folder()
        with create_session() as session:
            errors = {error.filename: error.stacktrace for error in session.scalars(select(ParseImportError))}
            dags = {dag.dag_id: not dag.is_stale for dag in session.scalars(select(DagModel))}
        seen.append({"errors": errors, "runs": dags})
    print(json.dumps(seen))
