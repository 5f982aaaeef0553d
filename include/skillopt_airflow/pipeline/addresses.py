"""Addresses of a training in Airflow: the ids of its DAGs, and the page of a run's report."""

from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from airflow.sdk import BaseOperatorLink

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

UI_PREFIX = "/skillopt"
"""Path at which the API server mounts this project's pages."""
REPORT_ROUTE = "/runs/{benchmark}/{run}/report"
"""Below the prefix; `run` as `skillopt_airflow.store.keys.run_name` gives it."""


train_dag_id = "train_{}".format
"""Names the DAG whose runs are the benchmark's trainings."""
epoch_dag_id = "train_{}_epoch".format
"""Names the DAG whose runs are the epochs of those trainings."""
epoch_end_dag_id = "train_{}_epoch_end".format
"""Names the DAG whose runs are what follows the steps of an epoch."""
evaluate_dag_id = "evaluate_{}".format
"""Names the DAG whose runs score any skill on any split."""
publish_dag_id = "publish_{}".format
"""Names the DAG whose runs publish the best skill of a finished training."""
rollback_dag_id = "rollback_{}".format
"""Names the DAG whose runs move the champion to an earlier version."""
regate_dag_id = "regate_{}".format
"""Names the DAG whose runs check the champion on the fresh items of a night."""
CLEANUP_DAG_ID = "cleanup"
"""Names the DAG whose runs keep the buckets of all benchmarks small."""


def run_address(dag_id: str, run_id: str) -> str:
    """Return the address of a DAG run's page, complete where Airflow knows its own address (`[api] base_url`)."""
    from airflow.sdk.configuration import conf

    base = str(conf.get("api", "base_url", fallback="")).rstrip("/")
    return f"{base}/dags/{dag_id}/runs/{quote(run_id, safe='')}"


class ReportLink(BaseOperatorLink):
    """The button on a task that leads to the report of its run."""

    name = "Report"

    def __init__(self, benchmark: str) -> None:
        self._benchmark = benchmark

    def get_link(self, operator: "BaseOperator", *, ti_key: "TaskInstanceKey") -> str:
        """Return the page's path on the API server; Airflow asks for it, and stores it, when the task ends."""
        from airflow.sdk.configuration import conf

        from skillopt_airflow.store.keys import run_name

        # Without scheme and host: a browser may know the server by another name than the worker does.
        base = urlsplit(conf.get("api", "base_url", fallback="/")).path.rstrip("/")
        page = REPORT_ROUTE.format(benchmark=self._benchmark, run=run_name(ti_key.run_id))
        return f"{base}{UI_PREFIX}{page}"
