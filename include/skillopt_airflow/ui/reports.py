"""The reports of trainings, as pages that Airflow's API server shows to everyone who may see the DAG."""

from datetime import datetime
from typing import Annotated, Any, NamedTuple

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.common.db.common import SessionDep
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from airflow.models.dagrun import DagRun
from airflow.sdk.exceptions import AirflowException
from fastapi import Depends, FastAPI, Request
from fastapi.responses import HTMLResponse
from sqlalchemy import select

from skillopt_airflow import benchmarks
from skillopt_airflow.core.errors import ObjectMissing, SkillOptError
from skillopt_airflow.pipeline.addresses import REPORT_ROUTE, UI_PREFIX, train_dag_id
from skillopt_airflow.pipeline.airflow_connections import AirflowConnections
from skillopt_airflow.store.keys import RunKeys, run_name
from skillopt_airflow.training.benchmark_settings import benchmark_config
from skillopt_airflow.training.run import RunRef
from skillopt_airflow.ui.message_page import message
from skillopt_airflow.ui.trainings import trained_benchmark, training_of

DAG_RUN_ROUTE = "/dag_runs/{dag_id}/{run_id}/report"
"""Below the plugin's prefix; the ids as Airflow's UI has them."""

REPORT_TAB = {
    "name": "Report",
    "destination": "dag_run",
    "url_route": "skillopt-report",
    # Without a slash in front, a browser reads it below the path that the API server itself is at.
    "href": f"{UI_PREFIX.removeprefix('/')}{DAG_RUN_ROUTE.format(dag_id='{DAG_ID}', run_id='{RUN_ID}')}",
}
"""The tab of a DAG run; Airflow shows it on those of every DAG."""

HEADERS = {
    # A report quotes what models wrote: whatever that is, the page loads and runs nothing, and only Airflow frames it.
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'self'; sandbox"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "private, no-store",
}

# Airflow does not ask for a login before an app of a plugin: the schema's own pages would be open to anyone.
app = FastAPI(title="SkillOpt", openapi_url=None)


def may_read(benchmark: str, request: Request, user: GetUserDep) -> None:
    """Let those pass who may read the runs of the benchmark's DAG; 401 without a login, 403 without the right."""
    requires_access_dag("GET", DagAccessEntity.RUN, train_dag_id(benchmark))(request, user)


def may_read_dag_run(dag_id: str, request: Request, user: GetUserDep) -> None:
    """Let those pass who may read the DAG's runs and, behind a part of a training, those of the training's DAG."""
    requires_access_dag("GET", DagAccessEntity.RUN, dag_id)(request, user)
    benchmark = trained_benchmark(dag_id)
    if benchmark is not None:
        may_read(benchmark, request, user)


class DagRunRow(NamedTuple):
    """Airflow's own record of a DAG run."""

    conf: dict[str, Any]
    night: datetime | None
    """Beginning of its data interval."""


def row_of(dag_id: str, run_id: str, session: SessionDep) -> DagRunRow | None:
    """Return the DAG run; None if there is no such run."""
    wanted = select(DagRun.conf, DagRun.data_interval_start).where(DagRun.dag_id == dag_id, DagRun.run_id == run_id)
    row = session.execute(wanted).first()
    return None if row is None else DagRunRow(row.conf or {}, row.data_interval_start)


@app.get(REPORT_ROUTE, dependencies=[Depends(may_read)])
def report(benchmark: str, run: str) -> HTMLResponse:
    """Return the run's report.html from the object store that the benchmark's configuration names."""
    if benchmark not in benchmarks.names():
        known = ", ".join(benchmarks.names())
        return message_page(404, "No such benchmark", f"There is no benchmark {benchmark!r}; there are: {known}.")
    if run != run_name(run):
        text = f"{run!r} is not the name of a run: letters, digits, points, dashes, underscores."
        return message_page(404, "No such run", text)
    try:
        return _report(RunRef(benchmark=benchmark, run=run, storage=benchmark_config(benchmark).storage))
    except (SkillOptError, AirflowException) as error:
        return message_page(502, "The report cannot be read", str(error))


@app.get(DAG_RUN_ROUTE, dependencies=[Depends(may_read_dag_run)])
def dag_run_report(dag_id: str, run_id: str, row: Annotated[DagRunRow | None, Depends(row_of)]) -> HTMLResponse:
    """Return the report of the training that the DAG run is a part of, from the object store that the run names."""
    benchmark = trained_benchmark(dag_id)
    if benchmark is None:
        trainings = ", ".join(train_dag_id(name) for name in benchmarks.names())
        text = f"Reports are written by the trainings of skills: {trainings}."
        return message_page(404, "This DAG has no report", text)
    if row is None:
        return message_page(404, "No such run", f"{dag_id} has no run {run_id}.")
    try:
        training = training_of(benchmark, dag_id, run_id, row.conf)
    except SkillOptError as error:
        return message_page(404, "This run has no report", str(error))
    try:
        return _report(training)
    except (SkillOptError, AirflowException) as error:
        return message_page(502, "The report cannot be read", str(error))


def stored_page(run: RunRef, key: str, missing: str, why: str) -> HTMLResponse:
    """Return a page that the run stored, or a message that it is missing; the address follows `why`.

    Raises:
        SkillOptError: the store does not give it.
    """
    store = AirflowConnections().object_store(run.storage, run.storage.bucket)
    try:
        return HTMLResponse(store.get_text(key), headers=HEADERS)
    except ObjectMissing:
        return message_page(404, missing, f"{why} Looked for at {store.address(key)}.")


def message_page(status: int, title: str, text: str) -> HTMLResponse:
    """Return a page that says why there is nothing to show."""
    return HTMLResponse(message(title, text), status_code=status, headers=HEADERS)


def _report(training: RunRef) -> HTMLResponse:
    key = RunKeys(training.storage.prefix, training.benchmark, training.run).report
    why = (
        "A training writes its report at its end, or when it stops early. Come back when the DAG run has ended; "
        "if it failed, its tasks' logs say why."
    )
    return stored_page(training, key, "No report yet", why)
