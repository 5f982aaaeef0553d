"""The pools that a run's tasks wait for, checked by its first task."""

import logging
from collections.abc import Mapping

from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.pool_slots import pool_uses
from skillopt_airflow.pipeline.pool_listener import VARIABLE
from skillopt_airflow.training.benchmark_settings import benchmark_config

UNLIMITED = -1

log = logging.getLogger(__name__)


def check_pools(benchmark: str) -> None:
    """Refuse to begin where tasks of the benchmark's DAGs would wait for ever for a pool.

    Raises:
        ConfigError: Airflow has no pool of a name, or too few slots for one task; the text has the command.
    """
    from airflow.sdk import Variable

    uses = pool_uses(benchmark_config(benchmark))
    if not uses:
        return
    pools: Mapping[str, int] | None = Variable.get(VARIABLE, default=None, deserialize_json=True)
    if pools is None:
        log.warning(
            "Whether Airflow has the pools %s is not known: its scheduler does not load the plugin of this project",
            ", ".join(uses),
        )
        return
    for name, (knob, needed) in uses.items():
        make = f"airflow pools set {name} SLOTS 'for skillopt'"
        if name not in pools:
            raise ConfigError(
                f"{knob} = {name}: Airflow has no such pool, and tasks would wait for it for ever: make it with "
                f"`{make}`, SLOTS being at least {needed}, or name another one in benchmark.yaml"
            )
        if UNLIMITED < pools[name] < needed:
            raise ConfigError(
                f"{knob} = {name}: the pool has {pools[name]} slots and one task takes {needed}, so it would wait for "
                f"ever: give it more with `{make}`, or lower model.concurrency / sandbox.max_containers, or "
                "gradient.analyst_workers"
            )
