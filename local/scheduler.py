"""Airflow's scheduler in a process that has already imported what tasks import.

LocalExecutor forks the tasks' processes from it, so that none of them pays for these imports, which would be most of
what a short task does. The project's own modules are among them, since Airflow loads its plugin here; an edit of theirs
has to reach the next task all the same, which then imports them anew.
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


def import_anew_in_children(package: Path) -> None:
    """Have processes that are forked from this one forget the modules of a package whose files changed since now."""
    name, known = package.name, _newest(package)

    def forget() -> None:
        if _newest(package) != known:
            for module in [one for one in sys.modules if one == name or one.startswith(f"{name}.")]:
                del sys.modules[module]

    os.register_at_fork(after_in_child=forget)


def _newest(package: Path) -> int:
    return max(path.stat().st_mtime_ns for path in package.rglob("*.py"))


def main() -> None:
    """Import, then be `airflow`."""
    import_anew_in_children(PROJECT / "include" / "skillopt_airflow")
    for module in PRELOADED:
        importlib.import_module(module)
    importlib.import_module("airflow.__main__").main()


if __name__ == "__main__":
    main()
