"""Airflow's scheduler in a process that has already imported what tasks import.

LocalExecutor forks the tasks' processes from it, so that none of them pays for these imports, which would be most of
what a short task does. The project's own modules are not among them: an edit of theirs has to reach the next task.
"""

import importlib
from collections.abc import Callable

PRELOADED = (
    "airflow.executors.local_executor",
    "airflow.providers.amazon.aws.hooks.base_aws",
    "airflow.providers.common.ai.hooks.pydantic_ai",
    "airflow.providers.docker.operators.docker",
    "airflow.providers.standard.operators.hitl",
    "airflow.providers.standard.operators.trigger_dagrun",
    "airflow.sdk.definitions.decorators",
    "airflow.sdk.execution_time.task_runner",
    "anyio.from_thread",
    "boto3.s3.inject",
    "great_expectations",
    "matplotlib.figure",
    "openai",
    "pandas",
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.parquet",
    "pydantic_ai.models.openai",
    "starlette.applications",
    "uvicorn.protocols.http.h11_impl",
)


def main() -> None:
    """Import, then be `airflow`."""
    for module in PRELOADED:
        importlib.import_module(module)
    airflow: Callable[[], None] = importlib.import_module("airflow.__main__").main
    airflow()


if __name__ == "__main__":
    main()
