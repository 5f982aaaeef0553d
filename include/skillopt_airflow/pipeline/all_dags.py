"""The DAGs of all benchmarks, for the DAG files of this repository and of installations."""

import logging
from collections.abc import Callable, Mapping

from airflow.sdk import DAG, CronTriggerTimetable, get_parsing_context
from airflow.sdk.exceptions import AirflowTimetableInvalid

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.pipeline.cleanup_dag import cleanup_dag
from skillopt_airflow.pipeline.evaluate_dag import evaluate_dag
from skillopt_airflow.pipeline.night_dag import regate_dag
from skillopt_airflow.pipeline.publishing import publish_dag, rollback_dag
from skillopt_airflow.pipeline.tasks import dag_ids
from skillopt_airflow.pipeline.training import epoch_dag, train_dag
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config, place_of

FACTORIES: Mapping[Callable[[str], str], Callable[[str, TrainConfig], DAG]] = {
    dag_ids.train_dag_id: train_dag,
    dag_ids.epoch_dag_id: epoch_dag,
    dag_ids.evaluate_dag_id: evaluate_dag,
    dag_ids.publish_dag_id: publish_dag,
    dag_ids.rollback_dag_id: rollback_dag,
    dag_ids.regate_dag_id: regate_dag,
}
"""The factories of a benchmark's DAGs, by the function that returns the DAG id."""

log = logging.getLogger(__name__)


def dags() -> dict[str, DAG]:
    """Return the DAGs by id, for `globals().update(dags())`; a task's process gets only its own DAG.

    An unreadable benchmark has no DAGs. An error here would break the whole DAG file and stop all its runs, so
    `check_benchmarks` raises it in another file. Raises ConfigError in a task's process of such a benchmark.
    """
    wanted = get_parsing_context().dag_id
    return {dag.dag_id: dag for dag in (_every_dag() if wanted is None else _one_dag(wanted))}


def check_benchmarks() -> None:
    """Raise ConfigError with a line per unreadable benchmark, for Airflow's list of import errors."""
    problems = []
    for name in benchmarks.names():
        try:
            benchmarks.load(name, readable_config(name).task)
        except ConfigError as error:
            problems.append(f"benchmark {name}: {error}")
    if problems:
        raise ConfigError("\n".join(problems))


def readable_config(benchmark: str) -> TrainConfig:
    """Return a benchmark's configuration, with the schedule checked by Airflow. Raises ConfigError."""
    config = benchmark_config(benchmark)
    schedule = config.regate.schedule
    try:
        CronTriggerTimetable(schedule, timezone="UTC").validate()
    except AirflowTimetableInvalid as error:
        where = place_of(benchmark, "regate.schedule")
        raise ConfigError(f"{where}: regate.schedule = {schedule}: not a cron expression or preset: {error}") from error
    return config


def _every_dag() -> list[DAG]:
    configs = _readable_configs()
    made = [factory(name, config) for name, config in configs.items() for factory in FACTORIES.values()]
    return [*made, cleanup_dag(benchmarks.names(), configs)]


def _one_dag(dag_id: str) -> list[DAG]:
    """Return the DAG with this id; empty if it belongs to another DAG file."""
    if dag_id == dag_ids.cleanup_dag_id():
        return [cleanup_dag(benchmarks.names(), _readable_configs())]
    found = [(name, factory) for name in benchmarks.names() for of, factory in FACTORIES.items() if of(name) == dag_id]
    return [factory(name, readable_config(name)) for name, factory in found]


def _readable_configs() -> dict[str, TrainConfig]:
    configs = {}
    for name in benchmarks.names():
        try:
            configs[name] = readable_config(name)
        except ConfigError as error:
            log.warning("benchmark %s has no DAGs: %s", name, error)
    return configs
