"""The reports of trainings, as pages that Airflow's API server shows to everyone who may see the DAG."""

from datetime import datetime
from typing import Annotated, Any, NamedTuple

from airflow.api_fastapi.common.db.common import SessionDep
from airflow.models.dagrun import DagRun
from airflow.models.xcom import XComModel
from fastapi import Depends, Request
from fastapi.responses import HTMLResponse
from sqlalchemy import select

from skillopt_airflow.core.errors import ObjectMissing, SkillOptError
from skillopt_airflow.pipeline.addresses import DAG_RUN_REPORT
from skillopt_airflow.pipeline.dag_ids import epoch_dag_id, evaluate_dag_id, train_dag_id
from skillopt_airflow.store.keys import RunKeys, run_name
from skillopt_airflow.training.benchmark_settings import benchmark_config
from skillopt_airflow.training.run_record import RunRef
from skillopt_airflow.ui.access import may_read, may_read_dag_run
from skillopt_airflow.ui.buckets import open_bucket
from skillopt_airflow.ui.matrix_page import matrix_page
from skillopt_airflow.ui.pages import STORED, app, dag_run_tab, message_page
from skillopt_airflow.ui.trainings import benchmark_of, training_of

REPORT_ROUTE = "/runs/{benchmark}/{run}/report"
"""Below the plugin's prefix; `run` as `skillopt_airflow.store.keys.run_name` gives it."""

REPORT_TAB = dag_run_tab("Report", DAG_RUN_REPORT)


class DagRunRow(NamedTuple):
    """Airflow's own record of a DAG run."""

    conf: dict[str, Any]
    night: datetime | None
    """Beginning of its data interval."""
    reference: Any = None
    """The reference that the first task of a night leaves of the night's run; None where it has not."""


def row_of(dag_id: str, run_id: str, session: SessionDep) -> DagRunRow | None:
    """Return the DAG run; None if there is no such run."""
    prepared = select(XComModel.value).where(
        XComModel.dag_id == dag_id,
        XComModel.run_id == run_id,
        XComModel.task_id == "prepare_night",
        XComModel.key == "run",
    )
    wanted = select(DagRun.conf, DagRun.data_interval_start, prepared.scalar_subquery().label("reference")).where(
        DagRun.dag_id == dag_id, DagRun.run_id == run_id
    )
    row = session.execute(wanted).first()
    return None if row is None else DagRunRow(row.conf or {}, row.data_interval_start, row.reference)


@app.get(REPORT_ROUTE, dependencies=[Depends(may_read)])
def report(benchmark: str, run: str) -> HTMLResponse:
    """Return the run's report.html from the object store that the benchmark's configuration names."""
    if run != run_name(run):
        text = f"{run!r} is not the name of a run: letters, digits, points, dashes, underscores."
        return message_page(404, "No such run", text)
    return _report(RunRef(benchmark=benchmark, run=run, storage=benchmark_config(benchmark).storage))


@app.get(DAG_RUN_REPORT, dependencies=[Depends(may_read_dag_run)])
def dag_run_report(
    request: Request, dag_id: str, run_id: str, row: Annotated[DagRunRow | None, Depends(row_of)]
) -> HTMLResponse:
    """Return the report of the training that the DAG run is a part of, from the object store that the run names.

    The report of an evaluation is its matrix.
    """
    evaluated = benchmark_of(dag_id, evaluate_dag_id)
    if evaluated is not None and row is not None:
        return matrix_page(request, evaluated, run_id, row.conf)
    benchmark = benchmark_of(dag_id, train_dag_id, epoch_dag_id)
    if benchmark is None and evaluated is None:
        text = (
            f"Reports are written by trainings, the runs of {train_dag_id('<benchmark>')}, and evaluations, those of "
            f"{evaluate_dag_id('<benchmark>')}."
        )
        return message_page(404, "This DAG has no report", text)
    if benchmark is None or row is None:
        return message_page(404, "No such run", f"{dag_id} has no run {run_id}.")
    try:
        training = training_of(benchmark, dag_id, run_id, row.conf)
    except SkillOptError as error:
        return message_page(404, "This run has no report", str(error))
    return _report(training)


def stored_page(run: RunRef, key: str, missing: str, why: str) -> HTMLResponse:
    """Return a page that the run stored, or a message that it is missing; the address follows `why`.

    Raises:
        SkillOptError: the store does not give it.
    """
    store = open_bucket(run.storage, run.storage.bucket)
    try:
        return HTMLResponse(store.get_text(key), headers=STORED)
    except ObjectMissing:
        return message_page(404, missing, f"{why} Looked for at {store.address(key)}.")


def _report(training: RunRef) -> HTMLResponse:
    keys = RunKeys(training.storage.prefix, training.benchmark, training.run)
    why = (
        "A training writes its report at its end, or when it stops early. Come back when the DAG run has ended; "
        "if it failed, its tasks' logs say why."
    )
    return stored_page(training, keys.report, "No report yet", why)
