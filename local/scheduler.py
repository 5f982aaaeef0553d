"""Airflow's scheduler with preloaded imports.

LocalExecutor forks task processes from it, so tasks don't repeat these imports, most of the time of a short task. The
project's modules are preloaded too, with the plugin. After an edit, the next task imports them again.
"""

import importlib
import os
import sys
from pathlib import Path

from local.home import PROJECT

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


def reimport_in_children(package: Path) -> None:
    """Make forked processes import a package again if its files change after this call."""
    name, known = package.name, _newest(package)

    def forget() -> None:
        if _newest(package) != known:
            for module in [one for one in sys.modules if one == name or one.startswith(f"{name}.")]:
                del sys.modules[module]

    os.register_at_fork(after_in_child=forget)


def _newest(package: Path) -> int:
    return max(path.stat().st_mtime_ns for path in package.rglob("*.py"))


def main() -> None:
    reimport_in_children(PROJECT / "include" / "skillopt_airflow")
    for module in PRELOADED:
        importlib.import_module(module)
    importlib.import_module("airflow.__main__").main()


if __name__ == "__main__":
    main()
