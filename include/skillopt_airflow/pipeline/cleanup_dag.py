"""`skillopt_cleanup`: removes old data of all benchmarks' trainings and nights."""

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, CronTriggerTimetable, TaskGroup, task
from pydantic import JsonValue

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.resource_groups import StorageGroup
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import ConfigError, EngineUnavailable, SkillOptError, collect_errors, merge_errors
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.pipeline.graph import TASK_DEFAULTS, engine_queue
from skillopt_airflow.pipeline.tasks.airflow_connections import AirflowConnections
from skillopt_airflow.pipeline.tasks.dag_ids import cleanup_dag_id
from skillopt_airflow.pipeline.tasks.task_errors import fail_on_wrong_input, failure_callback
from skillopt_airflow.store.keys import ArtifactKeys, grades_of, searches_of, target_of
from skillopt_airflow.tasks.protocols import JudgesRepository
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config
from skillopt_airflow.training.run.connections import published_skills

log = logging.getLogger(__name__)

DOC = """
For each benchmark, merges small trajectory files that are older than a day. Removes data that is older than
`retention.trajectory_days` (if set), and versions older than a week that no alias has ever named.
Also removes images of items that no task has used for two weeks, from the worker's engine.
Versions that an alias names or has named are kept. If one benchmark fails, the others are still cleaned up.
"""

UNUSED_DAYS = 7
"""A version without an alias may still get one; its run may take days."""
UNUSED_IMAGE_DAYS = 14
UNTOUCHED = timedelta(days=1)
"""Minimum age of merged parts; no task writes to them any more."""
CLEANING = timedelta(hours=12)
"""Time limit for all partitions of a benchmark; a retry starts again."""


def cleanup_dag(names: Sequence[str], configs: Mapping[str, TrainConfig]) -> DAG:
    """Build the DAG: one independent task per benchmark, and one per queue of workers with an engine.

    A failure alerts each benchmark's connection. `names` has all benchmarks, and tasks of those without config fail.
    """
    alerts = {config.alerts.conn_id: failure_callback(config) for config in configs.values()}
    with DAG(
        cleanup_dag_id(),
        catchup=False,
        doc_md=DOC,
        tags=["skillopt", "cleanup", *names],
        default_args=dict(TASK_DEFAULTS),
        schedule=CronTriggerTimetable("@weekly", timezone="UTC"),
        start_date=datetime(2020, 1, 1, tzinfo=UTC),
        max_active_runs=1,
        is_paused_upon_creation=True,
        on_failure_callback=[alert for alert in alerts.values() if alert] or None,
    ) as dag:
        with TaskGroup("benchmarks"):
            for name in names:
                clean_up.override(task_id=name, execution_timeout=CLEANING)(name)
        with TaskGroup("engines"):
            for number, those in enumerate(_by_queue(configs), start=1):
                queue = engine_queue(configs[those[0]])
                drop_item_images.override(task_id=f"drop_item_images_{number}", **queue)(those)
    return dag


@task
def clean_up(benchmark: str) -> JsonObject:
    """Clean up a benchmark's objects; return the sums, and the removed versions. Raises if one of the parts failed."""
    done: JsonObject = {}
    failures: list[SkillOptError] = []
    for part in (compact_trajectories, drop_unused_versions):
        with collect_errors(failures):
            done |= part(benchmark)
    if failures:
        raise merge_errors(failures)
    return done


def compact_trajectories(benchmark: str) -> JsonObject:
    """Merge each partition's parts, without old rows; return the sums.

    Old grades and search results are removed too, and corpora that no run has used within the longest retention of
    their bucket's benchmarks.
    """
    from skillopt_airflow.store.tables.retention import compact, drop_corpora, drop_old, partitions, sum_counts

    config = _config(benchmark)
    prefix, store = config.storage.prefix, AirflowConnections().object_store(config.storage, config.storage.bucket)
    days = config.retention.trajectory_days
    oldest = None if days is None else datetime.now(UTC) - timedelta(days=days)
    counts, untouched = [], datetime.now(UTC) - UNTOUCHED
    found = partitions(store, prefix, benchmark)
    for number, partition in enumerate(found, start=1):
        counts.append(compact(store, partition, oldest, untouched))
        told = counts[-1] if counts[-1].parts_before else "untouched, since its parts are less than a day old"
        log.info("%d of %d, %s: %s", number, len(found), partition, told)
    grades = 0 if oldest is None else drop_old(store, grades_of(prefix, benchmark), oldest)
    searches = 0 if oldest is None else drop_old(store, searches_of(prefix, benchmark), oldest)
    unused = None if config.data.corpus is None else _corpora_days(config.storage)
    corpora = 0 if unused is None else drop_corpora(store, prefix, datetime.now(UTC) - timedelta(days=unused))
    dropped = {"grades_dropped": grades, "searches_dropped": searches, "corpora_dropped": corpora}
    return sum_counts(counts)._asdict() | dropped


def drop_unused_versions(benchmark: str) -> JsonObject:
    """Remove the versions of all targets that no alias has named; return their names."""
    config = _config(benchmark)
    storage, before = config.storage, datetime.now(UTC) - timedelta(days=UNUSED_DAYS)
    store = AirflowConnections().object_store(storage, storage.artifact_bucket)
    dropped: list[JsonValue] = []
    for target in sorted(map(target_of, store.list_folders(ArtifactKeys.of_benchmark(storage.prefix, benchmark)))):
        published = published_skills(AirflowConnections(), storage, benchmark, target)
        dropped += [f"{target}/{version}" for version in published.drop_unused(before)]
    return {"versions_dropped": dropped}


@task
def drop_item_images(names: Sequence[str]) -> list[str]:
    """Remove images of items that no task has used for two weeks; return their names.

    Covers one engine; a worker without an engine has none. Raises if a connection's engine doesn't answer, after the
    other benchmarks.
    """
    removed: list[str] = []
    failures: list[SkillOptError] = []
    for name in names:
        with collect_errors(failures):
            removed += _unused_images_dropped(name)
    log.info("removed: %s", ", ".join(removed) or "nothing")
    if failures:
        raise merge_errors(failures)
    return removed


def _unused_images_dropped(benchmark: str) -> list[str]:
    from skillopt_airflow.sandbox.docker import connection as docker_connection
    from skillopt_airflow.sandbox.docker.item_images import remove_unused

    config = _config(benchmark)
    if config.sandbox.engine != "docker" or not isinstance(benchmarks.load(benchmark, config.task), JudgesRepository):
        return []
    engine = docker_connection.find_engine(config.sandbox.conn_id)
    try:
        with docker_connection.connection_errors(engine.url), engine.open_client() as client:
            return remove_unused(client, UNUSED_IMAGE_DAYS)
    except EngineUnavailable as error:
        if config.sandbox.conn_id is not None:
            raise
        log.info("no item images removed: %s", error)
        return []


def _by_queue(configs: Mapping[str, TrainConfig]) -> list[list[str]]:
    """Group the benchmarks with a Docker engine by queue."""
    found: dict[str | None, list[str]] = {}
    for name, config in configs.items():
        if config.sandbox.engine == "docker":
            found.setdefault(config.sandbox.queue, []).append(name)
    return list(found.values())


def _corpora_days(storage: StorageGroup) -> int | None:
    """Return the retention of unused corpora in days: the maximum of all benchmarks; None means indefinitely.

    Corpora are stored by content, without an owner.
    """
    most = UNUSED_DAYS
    for name in benchmarks.names():
        try:
            config = benchmark_config(name)
        except ConfigError as error:
            log.warning("no corpus removed, because benchmark %s may need it: %s", name, error)
            return None
        place = config.storage
        if config.data.corpus is None or (place.bucket, place.prefix) != (storage.bucket, storage.prefix):
            continue
        if config.retention.trajectory_days is None:
            log.info("no corpus removed, because benchmark %s keeps corpora indefinitely", name)
            return None
        most = max(most, config.retention.trajectory_days)
    return most


def _config(benchmark: str) -> TrainConfig:
    with fail_on_wrong_input():
        return benchmark_config(benchmark)
