"""The data quality page of a DAG run as a tab of the run, even if the data stopped the run."""

from typing import Annotated

from airflow.sdk.exceptions import AirflowException
from fastapi import Depends
from fastapi.responses import HTMLResponse

from skillopt_airflow import benchmarks
from skillopt_airflow.core.errors import DataError, SkillOptError
from skillopt_airflow.pipeline.dag_ids import epoch_dag_id, evaluate_dag_id, regate_dag_id, train_dag_id
from skillopt_airflow.store.keys import RunKeys, night_name
from skillopt_airflow.training.run_record import RunRef
from skillopt_airflow.ui.access import may_read_dag_run
from skillopt_airflow.ui.matrix_page import evaluated_run
from skillopt_airflow.ui.pages import app, dag_run_tab, message_page
from skillopt_airflow.ui.reports import DagRunRow, row_of, stored_page
from skillopt_airflow.ui.trainings import benchmark_of, training_of

QUALITY_ROUTE = "/dag_runs/{dag_id}/{run_id}/quality"
"""Below the plugin's prefix; the ids as Airflow's UI has them."""

QUALITY_TAB = dag_run_tab("Skill data quality", QUALITY_ROUTE)


@app.get(QUALITY_ROUTE, dependencies=[Depends(may_read_dag_run)])
def dag_run_quality(dag_id: str, run_id: str, row: Annotated[DagRunRow | None, Depends(row_of)]) -> HTMLResponse:
    """Return the data_quality.html of the training, evaluation or night that the DAG run is."""
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
    from skillopt_airflow.pipeline.triggered import night_config, night_date

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
