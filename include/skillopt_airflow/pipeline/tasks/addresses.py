"""Addresses of pages in Airflow: that of a DAG run, and that of its report."""

from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

UI_PREFIX = "/skillopt"
"""Path at which the API server mounts this project's pages."""
DAG_RUN_REPORT = "/dag_runs/{dag_id}/{run_id}/report"
"""Below the prefix; the ids as Airflow's UI has them."""


def run_address(dag_id: str, run_id: str) -> str:
    """Return the address of a DAG run's page, complete where Airflow knows its own address (`[api] base_url`)."""
    from airflow.sdk.configuration import conf

    base = str(conf.get("api", "base_url", fallback="")).rstrip("/")
    return f"{base}/dags/{dag_id}/runs/{quote(run_id, safe='')}"


class ReportLink(BaseOperatorLink):
    """The button on a task that leads to the report of its run."""

    name = "Report"

    def get_link(self, operator: "BaseOperator", *, ti_key: "TaskInstanceKey") -> str:
        """Return the page's path on the API server; Airflow asks for it, and stores it, when the task ends."""
        from airflow.sdk.configuration import conf

        # Without scheme and host: a browser may know the server by another name than the worker does.
        base = urlsplit(conf.get("api", "base_url", fallback="/")).path.rstrip("/")
        # By the DAG run, whose form says where the run is stored.
        page = DAG_RUN_REPORT.format(dag_id=ti_key.dag_id, run_id=quote(ti_key.run_id, safe=""))
        return f"{base}{UI_PREFIX}{page}"
