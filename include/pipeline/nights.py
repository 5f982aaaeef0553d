"""Before a night is measured: who is the champion, and which fresh items are there."""

from collections.abc import Mapping
from typing import Any

from include.core.config import TrainConfig
from include.core.types import JsonObject, Split
from include.models import connection
from include.pipeline import params
from include.pipeline.connections import connected, object_store, s3_client
from include.pipeline.params import PROJECT
from include.pipeline.preparation import configured, connected_prices, reachable
from include.store.artifacts import ArtifactStore
from include.store.files import DataFiles
from include.store.fresh import partition_uri, read_partition
from include.store.keys import ArtifactKeys, run_name
from include.training.ends import opened
from include.training.preparation import checked_items, read_seed, settle, store_files
from include.training.regate import Contest, contest_of, night_table, plan_night
from include.training.run import RunRef, TrainingRun

Night = tuple[TrainingRun, list[JsonObject]]


def prepare_night(benchmark: str, date: str, form: Mapping[str, Any]) -> Night | str:
    """The night's run and the chunks of its rollouts, none if it is settled; or why there is nothing to check.

    Args:
        benchmark: the benchmark's name.
        date: YYYY-MM-DD.
        form: the run's Params, `target` and `overrides`.

    Raises:
        SkillOptError: of the kind that says what is wrong.
    """
    config = night_config(benchmark, form)
    target = str(config.model.target)
    name = run_name(f"regate-{date}-{target}")
    run = connected(RunRef(benchmark=benchmark, run=name, storage=config.storage))
    artifacts = published_for(config, benchmark)
    if artifacts is None:
        return "no_data: nothing is published, so there is no champion to check"
    client, folder = s3_client(config.storage), PROJECT / "benchmarks" / benchmark
    uri = partition_uri(config.data, config.regate, date)
    records = read_partition(uri, folder, client)
    if records is None:
        return f"no_data: {uri} is not there; when it comes, backfill this night"
    items, quality = checked_items(uri, {Split.FRESH: records}, run.benchmark)
    items = store_files(run, items, DataFiles(uri.rpartition("/")[0], folder, client))
    settle(run, config, items, quality, reachable(config), connected_prices(config))
    if night_table(run).read(date) is not None:
        return run, []
    seed = opened(read_seed(PROJECT / "skills" / benchmark / "initial.md"), run)
    contest = contest_of(date, artifacts, seed)
    texts = [artifacts.read(version).skill if version else seed.text for version in _versions(contest)]
    return run, plan_night(run, contest, texts)


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
    storage = config.storage
    store = object_store(storage, storage.artifact_bucket)
    for target in dict.fromkeys((str(config.model.target), base_target(benchmark))):
        artifacts = ArtifactStore(store, ArtifactKeys(storage.prefix, benchmark, target))
        if artifacts.champion.read() is not None:
            return artifacts
    return None


def _versions(contest: Contest) -> list[str]:
    """In the order of the roles; the seed has none."""
    previous = [] if contest.previous is None else [contest.previous.version]
    return [contest.champion.version, contest.seed.version, *previous]
