"""`cleanup_<benchmark>`: what trainings and nights stored, kept small."""

import logging
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, CronTriggerTimetable, task

from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.types import JsonObject
from skillopt_airflow.pipeline import params
from skillopt_airflow.pipeline.addresses import cleanup_dag_id
from skillopt_airflow.pipeline.airflow_connections import AirflowConnections
from skillopt_airflow.pipeline.graph import dag_of
from skillopt_airflow.training.connections import published_skills

log = logging.getLogger(__name__)

DOC = """
Merges the many small parts of the trajectories of **{benchmark}** into one a partition, drops what is older than
`retention.trajectory_days` if that is set, and removes versions older than a week that no alias ever pointed to.
Versions that an alias points to, or ever did, are kept.
"""

UNUSED_VERSION_DAYS = 7
"""A version without an alias may be on its way to one."""


def cleanup_dag(benchmark: str, config: TrainConfig) -> DAG:
    """Build the DAG; its two tasks do not wait for each other."""
    with dag_of(
        cleanup_dag_id(benchmark),
        DOC.format(benchmark=benchmark),
        benchmark,
        config,
        schedule=CronTriggerTimetable(config.retention.schedule, timezone="UTC"),
        start_date=datetime(2020, 1, 1, tzinfo=UTC),
        max_active_runs=1,
        is_paused_upon_creation=True,
    ) as dag:
        compact_trajectories(benchmark)
        drop_unused_versions(benchmark)
    return dag


@task
def compact_trajectories(benchmark: str) -> JsonObject:
    """Merge each partition into one part without the rows that are too old; return the sums."""
    from skillopt_airflow.store.retention import Cleaned, compact, partitions

    config = params.benchmark_config(benchmark)
    store = AirflowConnections().object_store(config.storage, config.storage.bucket)
    days = config.retention.trajectory_days
    oldest = None if days is None else datetime.now(UTC) - timedelta(days=days)
    total = Cleaned()
    found = partitions(store, config.storage.prefix, benchmark)
    for number, partition in enumerate(found, start=1):
        cleaned = compact(store, partition, oldest)
        total += cleaned
        log.info("%d of %d, %s: %s", number, len(found), partition, cleaned)
    return total._asdict()


@task
def drop_unused_versions(benchmark: str) -> list[str]:
    """Remove the versions, of every target, that no alias ever pointed to; return their names."""
    from skillopt_airflow.store.keys import ArtifactKeys

    config = params.benchmark_config(benchmark)
    storage, before = config.storage, datetime.now(UTC) - timedelta(days=UNUSED_VERSION_DAYS)
    store = AirflowConnections().object_store(storage, storage.artifact_bucket)
    dropped = []
    for target in ArtifactKeys.targets(store.list_keys(f"{storage.prefix}skills/"), storage.prefix, benchmark):
        published = published_skills(AirflowConnections(), storage, benchmark, target)
        dropped += [f"{target}/{version}" for version in published.drop_unused(before)]
    return dropped
