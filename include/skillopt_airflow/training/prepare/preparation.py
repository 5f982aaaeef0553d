"""The preparation of a run: check and store all inputs before the first model call."""

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import NamedTuple

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.train_config import StatedScores, TrainConfig, changed_paths
from skillopt_airflow.core.errors import ConfigError, ObjectMissing
from skillopt_airflow.core.gate.decision import unknown_protected_items
from skillopt_airflow.core.gate.run_gates import (
    SmallestGain,
    check_groups,
    deciding_items,
    marks_of,
    publish_split,
    smallest_gains,
)
from skillopt_airflow.core.run.budget import MODEL_ROLES, Prices, Role, missing_price
from skillopt_airflow.core.run.timeline import steps_in_epoch
from skillopt_airflow.core.values.skill import SkillDocument, skill_of_person
from skillopt_airflow.core.values.types import DATA_SPLITS, Item, JsonObject, Split
from skillopt_airflow.quality.quality_report import QualityReport
from skillopt_airflow.quality.records import training_needs
from skillopt_airflow.store.artifacts import ArtifactStore
from skillopt_airflow.store.data.data_manifest import DataManifest, data_manifest
from skillopt_airflow.store.data.files import DataFiles
from skillopt_airflow.store.data.item_tables import save_items
from skillopt_airflow.tasks.protocols import ShowsFiles
from skillopt_airflow.training.prepare.benchmark_settings import check_images
from skillopt_airflow.training.prepare.data_checks import store_quality
from skillopt_airflow.training.prepare.estimate import SAMPLED_ITEMS, Estimate, Prompt, estimate_training
from skillopt_airflow.training.prepare.records_to_items import (
    Items,
    checked_items,
    manifest_changes,
    read_splits,
    shared_contents,
    shared_documents,
    store_files,
    unusable_items,
)
from skillopt_airflow.training.rollouts.rollout_plan import ids
from skillopt_airflow.training.rollouts.workload import rollout_program
from skillopt_airflow.training.run.connections import published_skills
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.run_documents import store_corpus
from skillopt_airflow.training.run.run_record import RunRecord
from skillopt_airflow.training.step.seed_and_final import (
    NamedSkill,
    find_skill,
    seed_plan,
    store_seed,
    with_run_regions,
)

log = logging.getLogger(__name__)


class TrainingStart(NamedTuple):
    """The part of a run's record that only trainings have."""

    smallest_gains: tuple[SmallestGain, ...] = ()
    init_version: str = ""
    stated: StatedScores | None = None


NO_TRAINING = TrainingStart()


def prepare_training(
    run: TrainingRun, config: TrainConfig, stated: StatedScores | None = None, *, accepts_program: bool = False
) -> list[JsonObject]:
    """Store all inputs of a run; return the seed's chunks. On bad data, store only the quality report.

    `accepts_program`: let a run with states go on with a changed rollout program.

    Raises:
        SkillOptError: an input is invalid; nothing else of the run is stored.
    """
    # Fail on a missing or closed bucket now, not after the training.
    run.store.list_keys(run.keys.folder)
    artifacts = published_skills(run.connections, config.storage, run.ref.benchmark, str(config.model.target))
    artifacts.list_versions()
    check_unchanged(run, config)
    init = _init_skill(run, config, artifacts)
    seed = with_run_regions(init.document, config)
    records, notes = read_splits(run.ref.benchmark, config, run.connections.s3_client(config.storage))
    source = f"data.uri = {config.data.uri}"
    items, quality = checked_items(run, config, source, records, training_needs(config, records), notes)
    prices = run.connections.prices(config)
    check_affordable(config, items, prices)
    check_groups(config, _groups(_gated(config, items)))
    image = run.connections.image(config)
    items, corpus = store_files(run, items, files_of(run, config)), store_corpus(run, config)
    check_item_images(run, config, items)
    check_same_inputs(run, items, seed, image, corpus, accepts_program=accepts_program)
    gated = _gated(config, items)
    look = artifacts.looks.next_number(marks_of(gated[publish_split(gated)]))
    begun = TrainingStart(smallest_gains(config, _groups(gated), look), init.version, stated)
    save_run(run, config, items, quality, image, prices, begun, corpus=corpus)
    store_seed(run, init, seed)
    log_size(run)
    return seed_plan(run)


def _init_skill(run: TrainingRun, config: TrainConfig, artifacts: ArtifactStore) -> NamedSkill:
    """Return the initial skill; a repeated run that began with the champion keeps that version."""
    asked = config.train.init_skill
    if asked == "champion":
        with suppress(ObjectMissing):
            before = run.store.get_model(run.keys.config, RunRecord)
            asked = before.init_version if before.config.train.init_skill == asked else asked
    found = find_skill(asked, run.seed_skill(), artifacts, run.connections.s3_client(config.storage))
    if asked != "seed":
        log.info("the run begins with %s", found.version if found.version else "the skill of train.init_skill")
    return found._replace(document=skill_of_person(found.document.text, "train.init_skill"))


def check_affordable(config: TrainConfig, items: Items, prices: Prices) -> None:
    """Raise ConfigError for a budget in dollars without a price, and for protected items that aren't in the split."""
    check_priced(config, prices)
    rules = config.evaluation
    usable = [item.id for item in items[Split.VAL][: rules.limit(Split.VAL)] if not item.unusable]
    unknown = unknown_protected_items(usable, rules)
    if unknown:
        raise ConfigError(
            f"evaluation.gate_protected_items: the selection split has no usable item {', '.join(unknown)}. Name "
            "ids of usable items"
        )


def check_priced(config: TrainConfig, prices: Prices, asked: Collection[Role] = MODEL_ROLES) -> None:
    """Raise ConfigError for a budget in dollars if the price of a used model is unknown."""
    if problem := missing_price(prices, config, asked):
        raise ConfigError(problem)


def check_item_images(run: TrainingRun, config: TrainConfig, items: Items) -> None:
    """Refuse a run whose items need missing images, or an engine that can't build them.

    Raises:
        ConfigError: the sandboxes are pods, which can't use item images; or an image is forbidden.
        ImageMissing: the message lists all missing images.
    """
    used = [item for rows in items.values() for item in rows if item.image is not None]
    if not used:
        return
    if config.sandbox.engine == "kubernetes":
        raise ConfigError(
            "sandbox.engine = kubernetes: the items bring repositories, whose images are built on a Docker engine and "
            "whose tests run there. Set sandbox.engine to docker"
        )
    names = {item.image.name for item in used if item.image and item.image.name}
    if names:
        check_images(sorted(names), config.sandbox.item_registry)
        run.connections.item_images(config, sorted(names))
    log.info("%d items have a repository; its image is built when an item first runs", len(used))


UNRELATED_GROUPS = ("regate", "retention", "alerts")
"""Config groups that don't affect a training's stored results."""


def check_unchanged(run: TrainingRun, config: TrainConfig) -> None:
    """Raise ConfigError, which names the keys, if a run that is prepared again has states under other settings."""
    former = run.store.find_model(run.keys.config, RunRecord)
    if former is None:
        return
    paths = changed_paths(former.config, config)
    changed = [path for path in paths if path.partition(".")[0] not in UNRELATED_GROUPS]
    if changed and run.store.exists(run.keys.runtime_state):
        raise ConfigError(
            f"run {run.ref.run} has steps under other settings; changed since: {', '.join(changed)}. "
            "Trigger a new run, which reuses the finished rollouts of this one"
        )


def check_same_inputs(
    run: TrainingRun,
    items: Items,
    seed: SkillDocument,
    image: str,
    corpus: str = "",
    *,
    accepts_program: bool = False,
) -> None:
    """Refuse changed data, seed skill, rollout program or corpus for a run that is prepared again.

    A rebuilt image can be the same program, under which rollouts are stored.

    Raises:
        ConfigError: it has states with other inputs; the message names them.
    """
    if not run.store.exists(run.keys.runtime_state):
        return
    before = run.store.get_model(run.keys.data_manifest, DataManifest).splits
    now = data_manifest(run.config.data, items).splits
    changed = [f"the {split} split" for split in now if split not in before or before[split] != now[split]]
    changed += ["the seed skill"] if run.skill(0).sha256 != seed.sha256 else []
    # Not `run.record`, which is rewritten.
    former = run.store.get_model(run.keys.config, RunRecord)
    program = rollout_program(former.config, image, benchmarks.folder(run.ref.benchmark))
    if former.program != program and not accepts_program:
        changed.append("the program of its rollouts (its task or adapter, or the sandbox image)")
    changed += ["the corpus"] if former.corpus != corpus else []
    changed += ["the benchmark's guidance"] if former.guidance != benchmarks.guidance(run.ref.benchmark) else []
    if changed:
        raise ConfigError(
            f"run {run.ref.run} has steps from other inputs; changed since: {', '.join(changed)}. Trigger a "
            "new run, which reuses the finished rollouts of this one"
        )


def save_run(
    run: TrainingRun,
    config: TrainConfig,
    items: Items,
    quality: QualityReport,
    image: str,
    prices: Prices,
    begun: TrainingStart = NO_TRAINING,
    *,
    corpus: str = "",
) -> None:
    """Store a run's configuration and items."""
    # Not `run.record`, which is rewritten.
    former = run.store.find_model(run.keys.config, RunRecord)
    created, prices = _start_and_prices(run, former, prices)
    record = RunRecord(
        benchmark=run.ref.benchmark,
        run=run.ref.run,
        created=created,
        config=config,
        image=image,
        program=rollout_program(config, image, benchmarks.folder(run.ref.benchmark)),
        steps_in_epoch=steps_in_epoch(len(items.get(Split.TRAIN, ())), config.train),
        prices=dict(prices),
        guidance=benchmarks.guidance(run.ref.benchmark),
        smallest_gains=begun.smallest_gains,
        init_version=begun.init_version,
        stated=begun.stated,
        corpus=corpus,
    )
    notes = [*unusable_items(items), *manifest_changes(run, config, items), *_program_change(former, record)]
    notes += [*shared_contents(items), *shared_documents(items)]
    for sentence in notes:
        log.warning("%s", sentence)
    store_quality(run, quality.model_copy(update={"notes": (*quality.notes, *notes)}))
    for split, rows in items.items():
        save_items(run.store, run.keys.items(split), rows)
    run.store.put_model(run.keys.data_manifest, data_manifest(config.data, items))
    run.store.put_model(run.keys.config, record)


def _program_change(former: RunRecord | None, record: RunRecord) -> list[str]:
    if former is None or former.program == record.program:
        return []
    change = f"from {former.program} to {record.program}"
    return [f"the rollout program changed during the run, {change}: scores before and after it may differ"]


def _start_and_prices(run: TrainingRun, former: RunRecord | None, prices: Prices) -> tuple[str, Prices]:
    """Return the run's start time and prices; prices are current until the run has a state."""
    if former is None:
        return datetime.now(UTC).isoformat(timespec="seconds"), prices
    return former.created, former.prices if run.store.exists(run.keys.runtime_state) else prices


def log_size(run: TrainingRun) -> None:
    """Log the run's size; log and store the estimate."""
    train = run.config.train
    splits = dict.fromkeys([*DATA_SPLITS, run.publish_split])
    sizes = {split: len(run.item_refs(split)) for split in splits}
    log.info("items: %s", ", ".join(f"{size} {split}" for split, size in sizes.items()))
    log.info("%d epochs of %d steps", train.num_epochs, run.record.steps_in_epoch)
    left_out = sizes[Split.TRAIN] - run.record.steps_in_epoch * train.batch_size * train.accumulation
    if left_out > 0:
        log.warning(
            "train.steps_per_epoch = %s leaves out %d of %d training items in every epoch",
            train.steps_per_epoch,
            left_out,
            sizes[Split.TRAIN],
        )
    made = estimate_run(run, sizes)
    run.store.put_model(run.keys.estimate, made.totals)
    for line in made.lines():
        log.info("%s", line)
    if run.config.model.harness == "chat" and isinstance(run.benchmark, ShowsFiles):
        log.info("  not included: content of items' files or documents that the benchmark shows; see a step's usage")
    log.info("minimum detectable gains at 80% power, for random answers with one outcome per group:")
    for gain in run.record.smallest_gains:
        log.info("  %s", gain)


def estimate_run(run: TrainingRun, sizes: Mapping[Split, int]) -> Estimate:
    """Estimate the whole run from the prompts of its first training items."""
    skill = run.skill(0)
    first = run.items_of(Split.TRAIN, ids(run.item_refs(Split.TRAIN)[:SAMPLED_ITEMS]))
    prompt = Prompt.of(run.benchmark, str(run.config.model.target), first)
    return estimate_training(run.config, sizes, prompt, len(skill.text), run.record.steps_in_epoch, run.record.prices)


def _gated(config: TrainConfig, items: Items) -> dict[Split, list[Item]]:
    """Return the gates' items by split."""
    found = {split: rows[: config.evaluation.limit(split)] for split, rows in items.items() if split is not Split.TRAIN}
    return {split: rows if split is Split.VAL else deciding_items(split, rows) for split, rows in found.items()}


def _groups(items: Mapping[Split, Sequence[Item]]) -> dict[Split, list[str]]:
    return {split: [item.group for item in of_split] for split, of_split in items.items()}


def files_of(run: TrainingRun, config: TrainConfig) -> DataFiles:
    """Return the files of the run's dataset."""
    return DataFiles.of(config.data, benchmarks.folder(run.ref.benchmark), run.connections.s3_client(config.storage))
