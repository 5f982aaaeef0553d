"""Tabs of a DAG run: a training's report, an evaluation's matrix, and data quality."""

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
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.run_record import RunRef
from skillopt_airflow.ui.access import (
    CachedConnections,
    benchmark_of,
    may_read,
    may_read_dag_run,
    open_bucket,
    training_of,
)
from skillopt_airflow.ui.pages import STORED, app, dag_run_tab, message_page, page

REPORT_ROUTE = "/runs/{benchmark}/{run}/report"
"""Below the plugin's prefix; `run` comes from `store.keys.run_name`."""

REPORT_TAB = dag_run_tab("Skill report", DAG_RUN_REPORT)

QUALITY_ROUTE = "/dag_runs/{dag_id}/{run_id}/quality"
"""Below the plugin's prefix, with Airflow's ids."""

QUALITY_TAB = dag_run_tab("Skill data quality", QUALITY_ROUTE)


def evaluation_run(benchmark: str, run_id: str, conf: Mapping[str, Any]) -> RunRef:
    storage = run_storage(benchmark_config(benchmark), conf)
    return RunRef(benchmark=benchmark, run=scoring_name(run_id), storage=storage)


def matrix_page(request: Request, benchmark: str, run_id: str, conf: Mapping[str, Any]) -> HTMLResponse:
    # Imported here because every Airflow process loads plugins, and this loads the S3 client.
    from skillopt_airflow.store.tables.matrix_table import MatrixTable

    run = evaluation_run(benchmark, run_id, conf)
    store = open_bucket(run.storage, run.storage.bucket)
    keys = MatrixKeys(run.storage.prefix, benchmark)
    try:
        matrix = MatrixTable(store, keys).read(run.run)
    except ObjectMissing:
        text = (
            "A run writes its matrix after its last rollout. Reload this page after the DAG run. If the run failed, "
            f"see its logs. Expected at {store.address(keys.matrix(run.run))}."
        )
        return message_page(404, "No matrix yet", text)
    return page(request, "matrix.html", matrix=matrix, address=store.address(keys.table(run.run)))


class DagRunRow(NamedTuple):
    conf: dict[str, Any]
    night: datetime | None
    """Start of the data interval."""


def row_of(dag_id: str, run_id: str, session: SessionDep) -> DagRunRow | None:
    """Read a DAG run through Airflow's API; None if it doesn't exist."""
    # Imported here because every Airflow process loads plugins, and only the API server needs its routes.
    from airflow.api_fastapi.core_api.routes.public.dag_run import get_dag_run

    try:
        run = get_dag_run(dag_id, run_id, session)
    except HTTPException:
        return None
    return DagRunRow(run.conf or {}, run.data_interval_start)


@app.get(REPORT_ROUTE, dependencies=[Depends(may_read)])
def report(request: Request, benchmark: str, run: str) -> HTMLResponse:
    if run != run_name(run):
        text = f"{run!r} isn't a run name. Run names have letters, digits, periods, hyphens, and underscores."
        return message_page(404, "No such run", text)
    return _report(request, RunRef(benchmark=benchmark, run=run, storage=benchmark_config(benchmark).storage))


@app.get(DAG_RUN_REPORT, dependencies=[Depends(may_read_dag_run)])
def dag_run_report(
    request: Request, dag_id: str, run_id: str, row: Annotated[DagRunRow | None, Depends(row_of)]
) -> HTMLResponse:
    """Show the report of a training or of one of its epochs, or the matrix of an evaluation."""
    evaluated = benchmark_of(dag_id, evaluate_dag_id)
    if evaluated is not None and row is not None:
        return matrix_page(request, evaluated, run_id, row.conf)
    benchmark = benchmark_of(dag_id, train_dag_id, epoch_dag_id)
    if benchmark is None and evaluated is None:
        text = (
            f"Only trainings ({train_dag_id('<benchmark>')}) and evaluations ({evaluate_dag_id('<benchmark>')}) have a "
            "report."
        )
        # Airflow shows the tab on the runs of every DAG.
        return message_page(200, "No report for this DAG", text)
    if benchmark is None or row is None:
        return message_page(404, "No such run", f"{dag_id} has no run {run_id}.")
    try:
        training = training_of(benchmark, dag_id, run_id, row.conf)
    except SkillOptError as error:
        return message_page(404, "This run has no report", str(error))
    return _report(request, training)


def _report(request: Request, training: RunRef) -> HTMLResponse:
    """Return the stored report if the run has ended, else a live one."""
    # Imported here because every Airflow process loads plugins, and these load Arrow and Matplotlib.
    from skillopt_airflow.report.run_page import page_values
    from skillopt_airflow.training.prepare.estimate import EstimateTotals
    from skillopt_airflow.training.report.reporting import current_task, has_ended, live_view

    run = TrainingRun(training, CachedConnections(), open_bucket(training.storage, training.storage.bucket))
    if has_ended(run):
        return HTMLResponse(run.store.get_text(run.keys.report), headers=STORED)
    if not run.store.exists(run.keys.config):
        text = (
            "The first task, prepare, is still checking the data, the models, and the sandbox image. If it failed, see "
            f"its log. Expected at {run.store.address(run.keys.config)}."
        )
        return message_page(404, "No report yet", text)
    view = live_view(run)
    if view is None:
        text = f"The report starts when the seed skill has a score. Running task: {current_task(run)}. Reload later."
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
        return message_page(200, "No data quality page", str(error))
    key = RunKeys(checked.storage.prefix, checked.benchmark, checked.run).quality_page
    store = open_bucket(checked.storage, checked.storage.bucket)
    try:
        return HTMLResponse(store.get_text(key), headers=STORED)
    except ObjectMissing:
        text = (
            "The run's first task checks the data and always stores this page. If the task failed for another reason, "
            f"see its log. Expected at {store.address(key)}."
        )
        return message_page(404, "No data quality page yet", text)


def checked_run(dag_id: str, run_id: str, row: DagRunRow) -> RunRef:
    """Return the run of a DAG run, whose conf can override the storage.

    Raises SkillOptError if the DAG checks no data, or if its conf is invalid.
    """
    # Imported here because every Airflow process loads plugins, and these load Arrow.
    from skillopt_airflow.pipeline.tasks.triggered import night_config, night_date

    trained = benchmark_of(dag_id, train_dag_id, epoch_dag_id)
    if trained is not None:
        return training_of(trained, dag_id, run_id, row.conf)
    for name in benchmarks.names():
        if dag_id == evaluate_dag_id(name):
            return evaluation_run(name, run_id, row.conf)
        if dag_id == regate_dag_id(name) and row.night is not None:
            config = night_config(name, {"target": None, "overrides": None} | row.conf)
            night = night_name(night_date(row.night, config), str(config.model.target))
            return RunRef(benchmark=name, run=night, storage=config.storage)
    checking = (dag("<benchmark>") for dag in (train_dag_id, evaluate_dag_id, regate_dag_id))
    raise DataError(f"Only trainings, evaluations, and nights check and run items: {', '.join(checking)}.")
