"""The slots that tasks take in Airflow's pools, where a slot is a task or a model call in flight."""

from skillopt_airflow.core.config import TrainConfig

DEFAULT_POOL = "default_pool"
"""Airflow's own pool, whose slots are tasks."""
MOST_AT_ONCE = 3
"""Calls that the preflight makes at the same time: of the target, the optimizer and the judge."""


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


def _counts_calls(config: TrainConfig, pool: str) -> bool:
    return config.model.pool_slot == "call" and pool != DEFAULT_POOL
