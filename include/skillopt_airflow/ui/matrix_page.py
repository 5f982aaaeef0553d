"""The matrix of a run of the evaluation DAG, as a page."""

from collections.abc import Mapping
from typing import Any

from fastapi import Request
from fastapi.responses import HTMLResponse

from skillopt_airflow.core.errors import ObjectMissing
from skillopt_airflow.pipeline.params import run_storage
from skillopt_airflow.store.keys import MatrixKeys, scoring_name
from skillopt_airflow.training.benchmark_settings import benchmark_config
from skillopt_airflow.training.run_record import RunRef
from skillopt_airflow.ui.buckets import open_bucket
from skillopt_airflow.ui.pages import message_page, page


def evaluated_run(benchmark: str, run_id: str, conf: Mapping[str, Any]) -> RunRef:
    """Return the run behind a DAG run with this conf, which may override the storage; raises ConfigError."""
    storage = run_storage(benchmark_config(benchmark), conf)
    return RunRef(benchmark=benchmark, run=scoring_name(run_id), storage=storage)


def matrix_page(request: Request, benchmark: str, run_id: str, conf: Mapping[str, Any]) -> HTMLResponse:
    """Return the page of the matrix that a DAG run left."""
    # Plugins are loaded into every process of Airflow, and this brings S3's client along.
    from skillopt_airflow.store.matrix_table import MatrixTable

    run = evaluated_run(benchmark, run_id, conf)
    store = open_bucket(run.storage, run.storage.bucket)
    keys = MatrixKeys(run.storage.prefix, benchmark)
    try:
        matrix = MatrixTable(store, keys).read(run.run)
    except ObjectMissing:
        text = (
            "A run writes its matrix when its rollouts have ended. Come back when the DAG run has; if it failed, its "
            f"tasks' logs say why. Looked for at {store.address(keys.matrix(run.run))}."
        )
        return message_page(404, "No matrix yet", text)
    return page(request, "matrix.html", matrix=matrix, address=store.address(keys.table(run.run)))
