"""The slots that tasks take in Airflow's pools, where a slot is a task or a model call in flight."""

from collections.abc import Mapping
from typing import NamedTuple

from skillopt_airflow.core.config import TrainConfig

DEFAULT_POOL = "default_pool"
"""Airflow's own pool, whose slots are tasks."""
MOST_AT_ONCE = 3
"""Calls that the preflight makes at the same time: of the target, the optimizer and the judge."""


class PoolUse(NamedTuple):
    """The most slots that a task takes in a pool, and the knob that names the pool."""

    knob: str
    slots: int


def calls_of_rollouts(config: TrainConfig) -> int | None:
    """Return the calls in flight of a task that runs containers, if they are the slots that it takes.

    That is its share where as many as `sandbox.max_containers` run at the same time.
    """
    if not _counts_calls(config, config.sandbox.pool):
        return None
    return max(1, config.model.concurrency // config.sandbox.max_containers)


def calls_of_optimizer(config: TrainConfig, most: int | None = None) -> int | None:
    """Return the calls in flight of a task that asks the optimizer, of which it makes at most so many at once."""
    if not _counts_calls(config, config.model.optimizer_pool):
        return None
    workers = config.gradient.analyst_workers
    return workers if most is None else min(workers, most)


def pool_uses(config: TrainConfig) -> Mapping[str, PoolUse]:
    """Return what is taken of each pool but Airflow's own."""
    rollouts, optimizer = calls_of_rollouts(config), calls_of_optimizer(config)
    uses = [
        (config.sandbox.pool, PoolUse("sandbox.pool", 1 if rollouts is None else rollouts)),
        (config.model.optimizer_pool, PoolUse("model.optimizer_pool", 1 if optimizer is None else optimizer)),
    ]
    largest = sorted(uses, key=lambda use: use[1].slots)
    return {pool: use for pool, use in largest if pool != DEFAULT_POOL}


def _counts_calls(config: TrainConfig, pool: str) -> bool:
    return config.model.pool_slot == "call" and pool != DEFAULT_POOL
