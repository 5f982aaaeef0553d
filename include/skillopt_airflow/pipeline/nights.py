"""Before a night is measured: who is the champion, and which fresh items are there."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.types import JsonObject, Split
from skillopt_airflow.models import connection
from skillopt_airflow.pipeline import params
from skillopt_airflow.pipeline.addresses import regate_dag_id
from skillopt_airflow.pipeline.connections import connected, published_skills, s3_client
from skillopt_airflow.pipeline.preparation import configured, connected_prices, most_mapped, reachable
from skillopt_airflow.store.artifacts import ArtifactStore
from skillopt_airflow.store.files import DataFiles
from skillopt_airflow.store.fresh import partition_uri, read_partition
from skillopt_airflow.store.keys import RegateKeys, night_name
from skillopt_airflow.store.nights import NightTable
from skillopt_airflow.training.ends import opened
from skillopt_airflow.training.map_limits import check_mappable, scoring_demand
from skillopt_airflow.training.preparation import Items, checked_items, read_items, read_seed, settle, store_files
from skillopt_airflow.training.quality import checked_fresh, failure_kept, items_of, stored_quality
from skillopt_airflow.training.regate import ROLES, Contest, contest_again, contest_of, plan_night, plan_nothing
from skillopt_airflow.training.run import RunRef, TrainingRun

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

log = logging.getLogger(__name__)

Night = tuple[TrainingRun, list[JsonObject]]


def prepare_night(benchmark: str, date: str, form: Mapping[str, Any]) -> Night | str:
    """The night's run and the chunks of its rollouts, without items if it is settled; or why there is nothing to check.

    Args:
        benchmark: the benchmark's name.
        date: YYYY-MM-DD.
        form: the run's Params, `target` and `overrides`.

    Raises:
        SkillOptError: of the kind that says what is wrong.
    """
    config = night_config(benchmark, form)
    target = str(config.model.target)
    run = connected(RunRef(benchmark=benchmark, run=night_name(date, target), storage=config.storage))
    artifacts = published_for(config, benchmark)
    if artifacts is None:
        return "no_data: nothing is published, so there is no champion to check"
    client, folder = s3_client(config.storage), benchmarks.folder(benchmark)
    uri = partition_uri(config.data, config.regate, date)
    records = read_partition(uri, folder, client)
    if records is None:
        return _no_data(benchmark, date, uri)
    nights = NightTable(run.store, RegateKeys(config.storage.prefix, benchmark, target))
    settled = nights.read(date) is not None
    with failure_kept(run):
        items, quality = checked_items(uri, {Split.FRESH: records}, run.benchmark)
        if settled:
            # Later a training may well use what was fresh on its day.
            quality = stored_quality(run) or quality
        else:
            trained = _trained_on(run, config, artifacts, folder, client)
            quality = checked_fresh(quality, items[Split.FRESH], trained, nights.dates_of_items())
            check_mappable(config, [scoring_demand(config, len(ROLES), len(items[Split.FRESH]))], most_mapped())
    image = reachable(config)
    items = store_files(run, items, DataFiles(uri.rpartition("/")[0], folder, client))
    settle(run, config, items, quality, image, connected_prices(config))
    if settled:
        return run, plan_nothing(run)
    return run, plan_night(run, *_contenders(run, date, artifacts))


def night_config(benchmark: str, form: Mapping[str, Any]) -> TrainConfig:
    """The configuration of a night, for the target that the form may name.

    Raises:
        ConfigError: a key or value that the configuration does not have.
        ModelConnectionError: a connection that is not there or names no model.
    """
    asked: Mapping[str, Any] = form["overrides"] or {}
    if form["target"] is not None:
        asked = {**asked, "model.target": form["target"]}
    return configured(benchmark, {"overrides": asked})


def base_target(benchmark: str) -> str:
    """The target that the benchmark is trained for when a run does not say another."""
    model = params.benchmark_config(benchmark).model
    return connection.model_name(model.target_conn_id, model.target)


def published_for(config: TrainConfig, benchmark: str) -> ArtifactStore | None:
    """The skills published for the night's target, or else for the benchmark's; None if there are none."""
    for target in dict.fromkeys((str(config.model.target), base_target(benchmark))):
        artifacts = published_skills(config.storage, benchmark, target)
        if artifacts.champion.read() is not None:
            return artifacts
    return None


def _trained_on(
    run: TrainingRun, config: TrainConfig, artifacts: ArtifactStore, folder: Path, client: "S3Client"
) -> Items:
    """The data of the training that made the champion, or the present data set if the bucket has them no more."""
    champion = artifacts.champion.read()
    name = "" if champion is None else artifacts.read(champion.version).manifest.run
    items = items_of(run, name)
    if items is None:
        log.info("the items of run %s are gone; the fresh ones are compared with data.uri = %s", name, config.data.uri)
        items, _ = read_items(config.data, folder, run.benchmark, client)
    return items


def _contenders(run: TrainingRun, date: str, artifacts: ArtifactStore) -> tuple[Contest, list[str]]:
    """Who is measured, and the texts in the order of the roles.

    For a target without a champion of its own those of that night under the benchmark's own, so that the two compare.
    """
    base = base_target(run.ref.benchmark)
    if artifacts.target == base != str(run.config.model.target):
        night = NightTable(run.store, RegateKeys(run.ref.storage.prefix, run.ref.benchmark, base)).read(date)
        if night is not None:
            return contest_again(run, night)
    seed = opened(read_seed(benchmarks.seed_skill(run.ref.benchmark)), run.config)
    contest = contest_of(date, artifacts, seed)
    previous = [] if contest.previous is None else [contest.previous.version]
    versions = [contest.champion.version, contest.seed.version, *previous]
    return contest, [artifacts.read(version).skill if version else seed.text for version in versions]


def _no_data(benchmark: str, date: str, uri: str) -> str:
    return (
        f"no_data: {uri} is not there, or empty; when it has come: airflow backfill create --dag-id "
        f"{regate_dag_id(benchmark)} --from-date {date} --to-date {date} --reprocess-behavior completed"
    )
