"""For a process with an Airflow of its own: the DAG processor reads a DAG folder once for each change of a file.

Arguments: the file, and the texts that it gets one after the other. Prints, as JSON and for each text, Airflow's import
errors by file, and the DAGs by whether Airflow runs them.
"""

import json
import subprocess
import sys
from pathlib import Path

from airflow.models.dag import DagModel
from airflow.models.errors import ParseImportError
from airflow.utils.db import initdb
from airflow.utils.session import create_session
from sqlalchemy import select

if __name__ == "__main__":
    initdb()
    seen = []
    for text in sys.argv[2:]:
        Path(sys.argv[1]).write_text(text)
        subprocess.run(
            [sys.executable, "-m", "airflow", "dag-processor", "--num-runs", "1"], check=True, stdout=sys.stderr
        )
        with create_session() as session:
            errors = {error.filename: error.stacktrace for error in session.scalars(select(ParseImportError))}
            dags = {dag.dag_id: not dag.is_stale for dag in session.scalars(select(DagModel))}
        seen.append({"errors": errors, "runs": dags})
    print(json.dumps(seen))
