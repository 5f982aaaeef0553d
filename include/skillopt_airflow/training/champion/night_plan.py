"""The preparation of a night: its contenders and fresh items."""

import json
import logging
import shlex
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import JsonValue

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.train_config import TrainConfig
from skillopt_airflow.core.errors import ConfigError, ObjectMissing
from skillopt_airflow.core.gate.item_scores import ItemScore, gate_value
from skillopt_airflow.core.run.budget import MEASURING_ROLES
from skillopt_airflow.core.values.documents import Document
from skillopt_airflow.core.values.skill import SkillDocument
from skillopt_airflow.core.values.types import JsonObject, Split
from skillopt_airflow.quality.fresh_items import MeasuredItems, content, fingerprint
from skillopt_airflow.store.aliases import champion_before
from skillopt_airflow.store.artifacts import ArtifactStore
from skillopt_airflow.store.data.datasets import EXTENSIONS, partition_uri, read_partition
from skillopt_airflow.store.data.files import DataFiles
from skillopt_airflow.store.data.item_tables import load_items
from skillopt_airflow.store.keys import ArtifactKeys, RegateKeys, RunKeys, target_of
from skillopt_airflow.store.objects import ObjectStore
from skillopt_airflow.store.tables.night_table import Contender, Night, NightTable, Promise
from skillopt_airflow.training.prepare.benchmark_settings import other_connection
from skillopt_airflow.training.prepare.data_checks import check_fresh_items, items_of
from skillopt_airflow.training.prepare.preparation import check_priced, save_run
from skillopt_airflow.training.prepare.records_to_items import (
    Items,
    checked_items,
    read_items,
    store_files,
    without_duplicates,
)
from skillopt_airflow.training.rollouts.rollout_plan import chunks_of, ids, largest_plan, store_plan, store_versions
from skillopt_airflow.training.run.connections import published_skills
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.run_documents import store_corpus
from skillopt_airflow.training.run.run_record import RunRecord
from skillopt_airflow.training.step.seed_and_final import with_run_regions

log = logging.getLogger(__name__)

CONTENDERS = ("champion", "seed", "previous")
"""Roles, in the order of the run's skill versions."""


class NightLineup(Document):
    """The skills to measure, fixed when the night is prepared."""

    date: str
    champion: Contender
    seed: Contender
    previous: Contender | None
    promised: Promise | None = None

    @property
    def roles(self) -> list[tuple[int, str]]:
        return [*enumerate(CONTENDERS if self.previous is not None else CONTENDERS[:2])]


class Commands(NamedTuple):
    """Parts of the commands in an error: the DAG id, and the night's overrides."""

    publish: str
    overrides: Mapping[str, JsonValue]


def prepare_night(
    run: TrainingRun, config: TrainConfig, date: str, base: str, commands: Commands
) -> list[JsonObject] | str:
    """Store the inputs of the night `date` (YYYY-MM-DD); return its chunks, or why there is nothing to check.

    `base` is the benchmark's own target.

    Raises:
        SkillOptError: for example, only other targets have a champion.
    """
    target, benchmark = str(config.model.target), run.ref.benchmark
    nights = NightTable(run.store, RegateKeys(config.storage.prefix, benchmark, target))
    if nights.read(date) is not None:
        return _concluded_before(run, config)
    artifacts = _published_for(run, config, base)
    if artifacts is None:
        _check_nowhere_published(run, config, commands)
        return "no_data: nothing is published, so there is no champion to check"
    client, folder = run.connections.s3_client(config.storage), partition_uri(config.data, config.regate, date)
    records = read_partition(folder, benchmarks.folder(run.ref.benchmark), client)
    if records is None:
        return (
            f"no_data: {folder}/items.json (or {EXTENSIONS}) is missing or empty. Once the items have arrived, "
            f"backfill {date} with the command in the DAG's documentation"
        )
    kept, notes = without_duplicates(config, {Split.FRESH: records})
    items, quality = checked_items(run, config, folder, kept, notes=notes)
    items = store_files(run, items, DataFiles(folder, benchmarks.folder(run.ref.benchmark), client))
    prices = run.connections.prices(config)
    trained = _training_items(run, config, artifacts)
    quality = check_fresh_items(run, quality, items[Split.FRESH], trained, measured_items(run, nights))
    check_priced(config, prices, MEASURING_ROLES)
    image = run.connections.image(config, MEASURING_ROLES)
    save_run(run, config, items, quality, image, prices, corpus=store_corpus(run, config))
    return plan_night(run, *_contenders(run, date, artifacts, base))


def _concluded_before(run: TrainingRun, config: TrainConfig) -> list[JsonObject] | str:
    """Return a concluded night's chunks without items; its result stays, and current knobs apply to it.

    Its items may have been removed, changed, or used by a training since.
    """
    record = run.store.find_model(run.keys.config, RunRecord)
    if record is None:
        return f"settled: run {run.ref.run}, which measured the night, is gone, so there is nothing to do again"
    run.store.put_model(run.keys.config, record.model_copy(update={"config": config}))
    return store_plan(run, run.timeline[0], "regate", [])


def _published_for(run: TrainingRun, config: TrainConfig, base: str) -> ArtifactStore | None:
    """Return the published skills of the night's target, else of the benchmark's; None if there are none."""
    for target in dict.fromkeys((str(config.model.target), base)):
        artifacts = published_skills(run.connections, config.storage, run.ref.benchmark, target)
        if artifacts.champion.read() is not None:
            return artifacts
    return None


def _check_nowhere_published(run: TrainingRun, config: TrainConfig, told: Commands) -> None:
    """Refuse a night whose target has no champion while other targets do, whose champions would go unchecked.

    Raises:
        ConfigError: the message names them and the commands to publish.
    """
    benchmark, storage, target = run.ref.benchmark, config.storage, str(config.model.target)
    folder = ArtifactKeys.of_benchmark(storage.prefix, benchmark)
    store, commands = run.connections.object_store(storage, storage.artifact_bucket), []
    stored = {key: value for key, value in told.overrides.items() if key.partition(".")[0] == "storage"}
    asked = {**other_connection(benchmark, config), **stored}
    overrides = {"overrides": asked} if asked else {}
    for other in sorted(map(target_of, store.list_folders(folder))):
        artifacts = published_skills(run.connections, storage, benchmark, other)
        champion = artifacts.champion.read()
        if champion is not None:
            conf = json.dumps({"run": artifacts.manifest(champion.version).run, "target": target, **overrides})
            publish = f"airflow dags trigger {told.publish} --conf {shlex.quote(conf)}"
            commands.append(f"to publish that of {other}: {publish}")
    if commands:
        raise ConfigError(
            f"the target {target} has no champion, but others have one, which no night checks now. Set model.target in "
            f"benchmark.yaml to the target in use until {target} has a champion; {'; '.join(commands)}"
        )


def _training_items(run: TrainingRun, config: TrainConfig, artifacts: ArtifactStore) -> Items:
    """Return the data of the champion's training, or the current dataset if that data is gone."""
    champion = artifacts.champion.read()
    name = "" if champion is None else artifacts.read(champion.version).manifest.run
    items = items_of(run, name)
    if items is None:
        log.info("the items of run %s are gone; the fresh ones are compared with data.uri = %s", name, config.data.uri)
        items, _ = read_items(run, config)
    return items


def measured_items(run: TrainingRun, nights: NightTable) -> MeasuredItems:
    """Return the items of all nights; nights stored without contents are read from their runs if possible."""
    by_id: dict[str, str] = {}
    by_content: dict[str, str] = {}
    everything = sorted(nights.all(), key=lambda night: night.date, reverse=True)
    stored = nights.contents(everything)
    for night in everything:
        keys = RunKeys(run.ref.storage.prefix, run.ref.benchmark, night.run)
        contents = stored[night.date] or fingerprints(run.store, keys)
        by_id |= dict.fromkeys(contents or nights.scores(night.date), f"night {night.date}")
        by_content |= dict.fromkeys(contents.values(), f"night {night.date}")
    return MeasuredItems(by_id, by_content)


def fingerprints(store: ObjectStore, keys: RunKeys) -> dict[str, str]:
    """Return the fingerprints of a night's items by id; empty if the items are gone."""
    try:
        return {item.id: fingerprint(content(item)) for item in load_items(store, keys.items(Split.FRESH))}
    except ObjectMissing:
        return {}


def promise_of(artifacts: ArtifactStore, version: str, config: TrainConfig) -> Promise | None:
    """Return the manifest's score on held-out items, if its metric is this run's.

    Scores under another harness don't compare.
    """
    manifest, rules = artifacts.read(version).manifest, config.evaluation
    if manifest.harness != config.model.harness:
        return None
    found, stored = manifest.best_scores.promised, manifest.config.get("evaluation")
    names = ("gate_metric", "gate_mixed_weight") if rules.gate_metric == "mixed" else ("gate_metric",)
    stated = stored if isinstance(stored, dict) else {}
    if found is None or any(stated.get(name) != getattr(rules, name) for name in names):
        # The interval holds only for the manifest's metric and weight.
        return None
    mean = ItemScore(hard=found.hard, soft=found.soft)
    return Promise(score=gate_value(mean, rules), low=found.low)


def _contenders(run: TrainingRun, date: str, artifacts: ArtifactStore, base: str) -> tuple[NightLineup, list[str]]:
    """Return the contenders and their texts, in the order of the roles.

    For a target without its own champion, these are the contenders of that night under the benchmark's target, for
    comparison.
    """
    if artifacts.target == base != str(run.config.model.target):
        night = NightTable(run.store, RegateKeys(run.ref.storage.prefix, run.ref.benchmark, base)).read(date)
        if night is not None:
            return earlier_lineup(run, night)
    seed = with_run_regions(run.seed_skill(), run.config)
    lineup = lineup_of(date, artifacts, seed)
    if artifacts.target == str(run.config.model.target):
        promised = promise_of(artifacts, lineup.champion.version, run.config)
        lineup = lineup.model_copy(update={"promised": promised})
    previous = [] if lineup.previous is None else [lineup.previous.version]
    versions = [lineup.champion.version, lineup.seed.version, *previous]
    return lineup, [artifacts.read(version).skill if version else seed.text for version in versions]


def lineup_of(date: str, artifacts: ArtifactStore, seed: SkillDocument) -> NightLineup:
    """Return the contenders of a target that has a champion."""
    history = artifacts.champion.history()
    champion, before = history[-1], champion_before(history)
    return NightLineup(
        date=date,
        champion=Contender(version=champion.version, sha256=champion.sha256),
        seed=Contender(version="", sha256=seed.sha256),
        previous=None if before is None else Contender(version=before.version, sha256=before.sha256),
    )


def earlier_lineup(run: TrainingRun, night: Night) -> tuple[NightLineup, list[str]]:
    """Return the contenders of a concluded night of any target, with their texts in the order of the roles."""
    lineup = NightLineup(date=night.date, champion=night.champion, seed=night.seed, previous=night.previous)
    keys = RunKeys(run.ref.storage.prefix, run.ref.benchmark, night.run)
    return lineup, [run.store.get_text(keys.skill(version)) for version, _ in lineup.roles]


def plan_night(run: TrainingRun, lineup: NightLineup, texts: Sequence[str]) -> list[JsonObject]:
    """Store the contenders and their texts; return the chunks, equal texts once."""
    items, samples = ids(run.item_refs(Split.FRESH)), range(run.config.evaluation.samples)
    run.store.put_model(run.keys.contest, lineup)
    chunks = chunks_of(run.config, "regate", store_versions(run, texts), Split.FRESH, items, samples)
    # The same number for every target, because one DAG run serves all targets of a night.
    least = largest_plan(len(items), run.config, len(CONTENDERS), len(samples))
    return store_plan(run, run.timeline[0], "regate", chunks, least=least)
