"""Addresses of a training in Airflow: the ids of its DAGs, and the page of a DAG run's report."""

import os
import re
from collections.abc import Callable
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from airflow.sdk import BaseOperatorLink

from skillopt_airflow.core.errors import ConfigError

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

UI_PREFIX = "/skillopt"
"""Path at which the API server mounts this project's pages."""
DAG_RUN_REPORT = "/dag_runs/{dag_id}/{run_id}/report"
"""Below the prefix; the ids as Airflow's UI has them."""


PREFIX_VARIABLE = "SKILLOPT_DAG_PREFIX"
"""Environment variable: what the ids of all DAGs and the names of all assets begin with; nothing when unset."""


def prefixed(name: str) -> str:
    """Return the name of a DAG or an asset, set apart from those of others in the same Airflow.

    Raises:
        ConfigError: SKILLOPT_DAG_PREFIX has characters that Airflow takes in no id.
    """
    prefix = os.environ.get(PREFIX_VARIABLE, "")
    if not re.fullmatch(r"[A-Za-z0-9_.-]{0,100}", prefix):
        raise ConfigError(
            f"{PREFIX_VARIABLE} = {prefix!r}: expected at most 100 letters, digits, underscores, points and dashes"
        )
    return f"{prefix}{name}"


def _ids(template: str) -> Callable[[str], str]:
    """Return what names a benchmark's DAG; the prefix is looked up at each call."""
    return lambda benchmark: prefixed(template.format(benchmark))


train_dag_id = _ids("train_{}")
"""Names the DAG whose runs are the benchmark's trainings."""
epoch_dag_id = _ids("train_{}_epoch")
"""Names the DAG whose runs are the epochs of those trainings."""
evaluate_dag_id = _ids("evaluate_{}")
"""Names the DAG whose runs score any skill on any split."""
transfer_dag_id = _ids("transfer_{}")
"""Names the DAG whose runs compare skills under several targets and harnesses."""
publish_dag_id = _ids("publish_{}")
"""Names the DAG whose runs publish the best skill of a finished training."""
rollback_dag_id = _ids("rollback_{}")
"""Names the DAG whose runs move the champion to an earlier version."""
regate_dag_id = _ids("regate_{}")
"""Names the DAG whose runs check the champion on the fresh items of a night."""


def cleanup_dag_id() -> str:
    """Name the DAG whose runs keep the buckets of all benchmarks small."""
    return prefixed("cleanup")


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
