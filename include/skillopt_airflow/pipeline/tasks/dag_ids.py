"""The ids of the DAGs, with this installation's prefix."""

import os
import re
from collections.abc import Callable

from skillopt_airflow.core.errors import ConfigError

PREFIX_VARIABLE = "SKILLOPT_DAG_PREFIX"
"""Environment variable: prefix of all DAG ids and asset names; default: none."""


def prefixed(name: str) -> str:
    """Return the name of a DAG or asset with the prefix. Raises ConfigError if Airflow wouldn't allow it in ids."""
    prefix = os.environ.get(PREFIX_VARIABLE, "")
    if not re.fullmatch(r"[A-Za-z0-9_.-]{0,100}", prefix):
        raise ConfigError(
            f"{PREFIX_VARIABLE} = {prefix!r}: expected at most 100 letters, digits, underscores, points and dashes"
        )
    return f"{prefix}{name}"


def _ids(template: str) -> Callable[[str], str]:
    return lambda benchmark: prefixed(template.format(benchmark))


train_dag_id = _ids("train_{}")
"""Runs of this DAG are the benchmark's trainings."""
epoch_dag_id = _ids("train_{}_epoch")
"""Runs of this DAG are epochs, or parts of epochs."""
evaluate_dag_id = _ids("evaluate_{}")
"""Runs of this DAG compare skills on splits, under targets and harnesses."""
publish_dag_id = _ids("publish_{}")
"""Runs of this DAG publish the best skill of a finished training."""
rollback_dag_id = _ids("rollback_{}")
"""Runs of this DAG move the champion to an earlier version."""
regate_dag_id = _ids("regate_{}")
"""Runs of this DAG check the champion on the fresh items of a night."""


def cleanup_dag_id() -> str:
    return prefixed("skillopt_cleanup")
