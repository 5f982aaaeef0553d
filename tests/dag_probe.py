"""For a process of its own: import the DAG files named as arguments, and print as JSON what came of it."""

import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

from airflow.sdk import DAG


def dags_of(path: Path) -> list[DAG]:
    """The DAGs that the file leaves in its namespace, which is where Airflow looks for them."""
    spec = importlib.util.spec_from_file_location(f"dag_file_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [value for value in vars(module).values() if isinstance(value, DAG)]


def described(dag: DAG) -> dict[str, Any]:
    """What the tests look at."""
    return {
        "tags": sorted(dag.tags),
        "doc_md": dag.doc_md,
        "schedule": str(dag.schedule) if dag.schedule is not None else None,
        "paused": bool(dag.is_paused_upon_creation),
        "catchup": dag.catchup,
        "params": sorted(dag.params),
        "tasks": {
            task.task_id: {
                "owner": task.owner,
                "retries": task.retries,
                "seconds": task.execution_timeout.total_seconds() if task.execution_timeout else None,
                "links": [link.name for link in task.operator_extra_links],
            }
            for task in dag.tasks
        },
    }


if __name__ == "__main__":
    dags = [dag for path in sys.argv[1:] for dag in dags_of(Path(path))]
    loaded = sorted(sys.modules)
    sys.stdout.write(json.dumps({"dags": {dag.dag_id: described(dag) for dag in dags}, "modules": loaded}))
