"""The reports of trainings, as pages that Airflow's API server shows to whoever may see the DAG."""

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import Depends, FastAPI, HTTPException, Request
from fastapi.responses import HTMLResponse

import benchmarks
from include.core.errors import ObjectMissing, SkillOptError
from include.pipeline.addresses import REPORT_ROUTE, train_dag_id
from include.pipeline.params import benchmark_config
from include.pipeline.run import object_store
from include.store.keys import RunKeys, run_name

HEADERS = {
    # A report quotes what models wrote: whatever that is, the page loads and runs nothing.
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
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


@app.get(REPORT_ROUTE, dependencies=[Depends(may_read)])
def report(benchmark: str, run: str) -> HTMLResponse:
    """The run's report.html, from the object store that the benchmark's configuration names."""
    if benchmark not in benchmarks.names():
        raise HTTPException(404, f"there is no benchmark {benchmark!r}; there are: {', '.join(benchmarks.names())}")
    if run != run_name(run):
        raise HTTPException(404, f"{run!r} is not the name of a run: letters, digits, points, dashes, underscores")
    try:
        storage = benchmark_config(benchmark).storage
        store = object_store(storage, storage.bucket)
        return HTMLResponse(store.get_text(RunKeys(storage.prefix, benchmark, run).report), headers=HEADERS)
    except ObjectMissing as error:
        raise HTTPException(404, f"the run has no report, or none yet: {error}") from error
    except SkillOptError as error:
        raise HTTPException(502, str(error)) from error
