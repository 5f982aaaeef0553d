"""The ids of the DAGs, which begin with what sets them apart from others in the same Airflow."""

import os
import re
from collections.abc import Callable

from skillopt_airflow.core.errors import ConfigError

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
    return lambda benchmark: prefixed(template.format(benchmark))


train_dag_id = _ids("train_{}")
"""Names the DAG whose runs are the benchmark's trainings."""
epoch_dag_id = _ids("train_{}_epoch")
"""Names the DAG whose runs are the epochs of those trainings."""
evaluate_dag_id = _ids("evaluate_{}")
"""Names the DAG whose runs compare skills on splits, under targets and harnesses."""
publish_dag_id = _ids("publish_{}")
"""Names the DAG whose runs publish the best skill of a finished training."""
rollback_dag_id = _ids("rollback_{}")
"""Names the DAG whose runs move the champion to an earlier version."""
regate_dag_id = _ids("regate_{}")
"""Names the DAG whose runs check the champion on the fresh items of a night."""


def cleanup_dag_id() -> str:
    return prefixed("cleanup")
