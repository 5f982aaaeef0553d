"""`cleanup`: what the trainings and nights of all benchmarks stored, kept small."""

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta

from airflow.sdk import DAG, CronTriggerTimetable, TaskGroup, task
from pydantic import JsonValue

from skillopt_airflow.core.config.resource_groups import StorageGroup
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import ConfigError, EngineUnavailable, SkillOptError, collect_errors, merge_errors
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.pipeline.graph import TASK_DEFAULTS, engine_queue
from skillopt_airflow.pipeline.tasks.airflow_connections import AirflowConnections
from skillopt_airflow.pipeline.tasks.dag_ids import cleanup_dag_id
from skillopt_airflow.pipeline.tasks.task_errors import on_failure, wrong_input_fails
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config
from skillopt_airflow.training.run.connections import published_skills

log = logging.getLogger(__name__)

DOC = """
For each benchmark, merges the small parts of its trajectories that are older than a day into few, drops what is older
than its `retention.trajectory_days` if that is set, and removes versions older than a week that no alias ever named.
Images of items that no task has used for two weeks go, too, from the engine of the worker that looks.
Versions that an alias points to, or ever did, are kept. A benchmark that fails leaves the others done.
"""

UNUSED_DAYS = 7
"""A version without an alias may be on its way to one, and a run may take some days."""
UNUSED_IMAGE_DAYS = 14
UNTOUCHED = timedelta(days=1)
"""Age of the parts that are merged: no task has them open any more."""
CLEANING = timedelta(hours=12)
"""Time for all partitions of a benchmark, which no retry could go on with in the middle."""


def cleanup_dag(names: Sequence[str], configs: Mapping[str, TrainConfig]) -> DAG:
    """Build the DAG: a task a benchmark, and one a queue of workers with an engine; none waits for another.

    Every run cleans up after all benchmarks, and each connection for alerts is told of a failure.

    Args:
        names: all benchmarks; the tasks of one that cannot be read fail.
        configs: the configurations of the others.
    """
    tellers = {config.alerts.conn_id: on_failure(config) for config in configs.values()}
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
        on_failure_callback=[teller for teller in tellers.values() if teller] or None,
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
    """Clean up after a benchmark in the object store; return the sums, and the names of the versions that were removed.

    Raises:
        SkillOptError: one of the parts failed; the other is done.
    """
    done: JsonObject = {}
    failures: list[SkillOptError] = []
    for part in (compact_trajectories, drop_unused_versions):
        with collect_errors(failures):
            done |= part(benchmark)
    if failures:
        raise merge_errors(failures)
    return done


def compact_trajectories(benchmark: str) -> JsonObject:
    """Merge the parts of each partition into few, without the rows that are too old; return the sums.

    The grades that judges gave such rows, and what their searches found, go with them, and corpora that no run used for
    as many days, or more if other benchmarks keep theirs for longer.
    """
    from skillopt_airflow.store.keys import grades_of, searches_of
    from skillopt_airflow.store.tables.retention import CleanupCounts, compact, drop_corpora, drop_old, partitions

    config = _config(benchmark)
    prefix, store = config.storage.prefix, AirflowConnections().object_store(config.storage, config.storage.bucket)
    days = config.retention.trajectory_days
    oldest = None if days is None else datetime.now(UTC) - timedelta(days=days)
    total, untouched = CleanupCounts(), datetime.now(UTC) - UNTOUCHED
    found = partitions(store, prefix, benchmark)
    for number, partition in enumerate(found, start=1):
        cleaned = compact(store, partition, oldest, untouched)
        total += cleaned
        log.info("%d of %d, %s: %s", number, len(found), partition, cleaned)
    grades = 0 if oldest is None else drop_old(store, grades_of(prefix, benchmark), oldest)
    searches = 0 if oldest is None else drop_old(store, searches_of(prefix, benchmark), oldest)
    corpora = 0
    unused_days = None if config.data.corpus is None else _corpora_days(config.storage)
    if unused_days is not None:
        corpora = drop_corpora(store, prefix, datetime.now(UTC) - timedelta(days=unused_days))
    dropped = {"grades_dropped": grades, "searches_dropped": searches, "corpora_dropped": corpora}
    return total._asdict() | dropped


def drop_unused_versions(benchmark: str) -> JsonObject:
    """Remove the versions, of every target, that no alias ever named; return their names."""
    from skillopt_airflow.store.keys import ArtifactKeys, target_of

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
    """Remove the images of the benchmarks' items that no task has used for two weeks; return their names.

    They are the images of one engine. A worker without an engine has none.

    Raises:
        SkillOptError: an engine that a connection names does not answer; the other benchmarks are done.
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
    from skillopt_airflow import benchmarks
    from skillopt_airflow.sandbox.docker import connection as docker_connection
    from skillopt_airflow.sandbox.docker.item_images import remove_unused
    from skillopt_airflow.tasks.protocols import JudgesRepository

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
        log.info("no images of items are removed here: %s", error)
        return []


def _by_queue(configs: Mapping[str, TrainConfig]) -> list[list[str]]:
    """Return the benchmarks whose containers run on a Docker engine, those of a queue together."""
    found: dict[str | None, list[str]] = {}
    for name, config in configs.items():
        if config.sandbox.engine == "docker":
            found.setdefault(config.sandbox.queue, []).append(name)
    return list(found.values())


def _corpora_days(storage: StorageGroup) -> int | None:
    """Return the days for which unused corpora are kept there: the most that a benchmark asks for; None is for ever.

    A corpus is stored under its content, and does not tell whose it is.
    """
    from skillopt_airflow import benchmarks

    most = UNUSED_DAYS
    for name in benchmarks.names():
        try:
            config = benchmark_config(name)
        except ConfigError as error:
            log.warning("no corpus is removed, since benchmark %s may need it: %s", name, error)
            return None
        place = config.storage
        if config.data.corpus is None or (place.bucket, place.prefix) != (storage.bucket, storage.prefix):
            continue
        if config.retention.trajectory_days is None:
            log.info("no corpus is removed, since benchmark %s keeps its own for ever", name)
            return None
        most = max(most, config.retention.trajectory_days)
    return most


def _config(benchmark: str) -> TrainConfig:
    with wrong_input_fails():
        return benchmark_config(benchmark)
