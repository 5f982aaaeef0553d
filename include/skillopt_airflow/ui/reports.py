"""The tabs of a DAG run: the report of a training, the matrix of an evaluation, and the page of the data quality."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, NamedTuple

from airflow.api_fastapi.common.db.common import SessionDep
from airflow.sdk.exceptions import AirflowException
from fastapi import Depends, HTTPException, Request
from fastapi.responses import HTMLResponse

from skillopt_airflow import benchmarks
from skillopt_airflow.core.errors import DataError, ObjectMissing, SkillOptError
from skillopt_airflow.pipeline.tasks.addresses import DAG_RUN_REPORT
from skillopt_airflow.pipeline.tasks.dag_ids import epoch_dag_id, evaluate_dag_id, regate_dag_id, train_dag_id
from skillopt_airflow.pipeline.tasks.params import run_storage
from skillopt_airflow.store.keys import MatrixKeys, RunKeys, night_name, run_name, scoring_name
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config
from skillopt_airflow.training.run.run_record import RunRef
from skillopt_airflow.ui.access import benchmark_of, may_read, may_read_dag_run, training_of
from skillopt_airflow.ui.buckets import KeptConnections, open_bucket
from skillopt_airflow.ui.pages import STORED, app, dag_run_tab, message_page, page

REPORT_ROUTE = "/runs/{benchmark}/{run}/report"
"""Below the plugin's prefix; `run` as `skillopt_airflow.store.keys.run_name` gives it."""

REPORT_TAB = dag_run_tab("Skill report", DAG_RUN_REPORT)

QUALITY_ROUTE = "/dag_runs/{dag_id}/{run_id}/quality"
"""Below the plugin's prefix; the ids as Airflow's UI has them."""

QUALITY_TAB = dag_run_tab("Skill data quality", QUALITY_ROUTE)


def evaluated_run(benchmark: str, run_id: str, conf: Mapping[str, Any]) -> RunRef:
    """Return the run behind a DAG run with this conf, which may override the storage; raises ConfigError."""
    storage = run_storage(benchmark_config(benchmark), conf)
    return RunRef(benchmark=benchmark, run=scoring_name(run_id), storage=storage)


def matrix_page(request: Request, benchmark: str, run_id: str, conf: Mapping[str, Any]) -> HTMLResponse:
    # Plugins are loaded into every process of Airflow, and this brings S3's client along.
    from skillopt_airflow.store.tables.matrix_table import MatrixTable

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


class DagRunRow(NamedTuple):
    conf: dict[str, Any]
    night: datetime | None
    """Beginning of its data interval."""


def row_of(dag_id: str, run_id: str, session: SessionDep) -> DagRunRow | None:
    """Return what Airflow's API says of the DAG run; None if there is no such run."""
    # Plugins are loaded into every process of Airflow, and only the API server needs its routes.
    from airflow.api_fastapi.core_api.routes.public.dag_run import get_dag_run

    try:
        found = get_dag_run(dag_id, run_id, session)
    except HTTPException:
        return None
    return DagRunRow(found.conf or {}, found.data_interval_start)


@app.get(REPORT_ROUTE, dependencies=[Depends(may_read)])
def report(request: Request, benchmark: str, run: str) -> HTMLResponse:
    if run != run_name(run):
        text = f"{run!r} is not the name of a run: letters, digits, points, dashes, underscores."
        return message_page(404, "No such run", text)
    return _report(request, RunRef(benchmark=benchmark, run=run, storage=benchmark_config(benchmark).storage))


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
    return _report(request, training)


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


def _report(request: Request, training: RunRef) -> HTMLResponse:
    """Return the report of a run that has ended as it was stored, or else that of the run as far as it has come."""
    # Plugins are loaded into every process of Airflow, and these bring Arrow and Matplotlib along.
    from skillopt_airflow.report.run_page import page_values
    from skillopt_airflow.training.prepare.estimate import EstimateTotals
    from skillopt_airflow.training.report.reporting import current_task, has_ended, live_view
    from skillopt_airflow.training.run.run import TrainingRun

    run = TrainingRun(training, KeptConnections(), open_bucket(training.storage, training.storage.bucket))
    if has_ended(run):
        return HTMLResponse(run.store.get_text(run.keys.report), headers=STORED)
    if not run.store.exists(run.keys.config):
        text = (
            "The first task, prepare, checks data, models and sandbox image, and has stored nothing yet. If it failed, "
            f"its log says why. Looked for {run.store.address(run.keys.config)}."
        )
        return message_page(404, "No report yet", text)
    view = live_view(run)
    if view is None:
        text = f"The report begins when the seed skill is measured. Now: {current_task(run)}. Reload this page later."
        return message_page(200, "No score yet", text)
    values = page_values(view, run.store.find_model(run.keys.estimate, EstimateTotals))
    return page(request, "report.html", plots=True, layout="base.html", **values)


@app.get(QUALITY_ROUTE, dependencies=[Depends(may_read_dag_run)])
def dag_run_quality(dag_id: str, run_id: str, row: Annotated[DagRunRow | None, Depends(row_of)]) -> HTMLResponse:
    if row is None:
        return message_page(404, "No such run", f"{dag_id} has no run {run_id}.")
    try:
        checked = checked_run(dag_id, run_id, row)
    except (SkillOptError, AirflowException) as error:
        return message_page(404, "Nothing was checked", str(error))
    key = RunKeys(checked.storage.prefix, checked.benchmark, checked.run).quality_page
    why = (
        "Data are checked by the run's first task, which leaves a page whatever it finds. If the task failed for "
        "another reason, its log says why."
    )
    return stored_page(checked, key, "Nothing was checked yet", why)


def checked_run(dag_id: str, run_id: str, row: DagRunRow) -> RunRef:
    """Return the run behind a DAG run, with the storage that its conf may name.

    Raises:
        SkillOptError: the DAG checks no data, or was triggered with a configuration that it does not accept.
    """
    # Plugins are loaded into every process of Airflow, and these bring Arrow along.
    from skillopt_airflow.pipeline.tasks.triggered import night_config, night_date

    trained = benchmark_of(dag_id, train_dag_id, epoch_dag_id)
    if trained is not None:
        return training_of(trained, dag_id, run_id, row.conf)
    for name in benchmarks.names():
        if dag_id == evaluate_dag_id(name):
            return evaluated_run(name, run_id, row.conf)
        if dag_id == regate_dag_id(name) and row.night is not None:
            config = night_config(name, {"target": None, "overrides": None} | row.conf)
            night = night_name(night_date(row.night, config), str(config.model.target))
            return RunRef(benchmark=name, run=night, storage=config.storage)
    checking = (dag("<benchmark>") for dag in (train_dag_id, evaluate_dag_id, regate_dag_id))
    raise DataError(f"Items are checked and rolled out by trainings, evaluations and nights: {', '.join(checking)}.")
