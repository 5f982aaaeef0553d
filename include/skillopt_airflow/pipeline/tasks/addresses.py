"""URLs of a DAG run's page and of its report."""

from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from airflow.sdk import BaseOperator, BaseOperatorLink
from airflow.sdk.configuration import conf

if TYPE_CHECKING:
    from airflow.sdk.types import TaskInstanceKey

UI_PREFIX = "/skillopt"
"""Path of this project's pages on the API server."""
DAG_RUN_REPORT = "/dag_runs/{dag_id}/{run_id}/report"
"""Relative to the prefix, with Airflow's ids."""


def run_url(dag_id: str, run_id: str) -> str:
    """Return the URL of a DAG run's page, absolute if `[api] base_url` is set."""
    base = str(conf.get("api", "base_url", fallback="")).rstrip("/")
    return f"{base}/dags/{dag_id}/runs/{quote(run_id, safe='')}"


class ReportLink(BaseOperatorLink):
    """The link from a task to its run's report."""

    name = "Report"

    def get_link(self, operator: BaseOperator, *, ti_key: "TaskInstanceKey") -> str:
        """Return the page's path on the API server; Airflow stores it when the task ends."""
        # Without scheme and host: a browser may use another host name than the worker.
        base = urlsplit(conf.get("api", "base_url", fallback="/")).path.rstrip("/")
        # By DAG run, whose form names the run's storage.
        page = DAG_RUN_REPORT.format(dag_id=ti_key.dag_id, run_id=quote(ti_key.run_id, safe=""))
        return f"{base}{UI_PREFIX}{page}"
