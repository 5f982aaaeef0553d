"""The preparation of a run: all that it rests on is checked and stored before the first model call."""

import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, NamedTuple

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
from skillopt_airflow.quality.records import training_needs
from skillopt_airflow.tasks.protocols import ShowsFiles
from skillopt_airflow.training.prepare.benchmark_settings import check_images
from skillopt_airflow.training.prepare.data_checks import store_quality
from skillopt_airflow.training.prepare.data_items import (
    Items,
    changed_since_listed,
    checked_items,
    read_splits,
    shared_contents,
    shared_documents,
    store_files,
    unusable_items,
)
from skillopt_airflow.training.prepare.estimate import LOOKED_AT, Estimate, Prompt, estimate_training
from skillopt_airflow.training.rollouts.rollout_plan import ids
from skillopt_airflow.training.rollouts.rollout_protocol import rollout_program
from skillopt_airflow.training.run.connections import published_skills
from skillopt_airflow.training.run.named_skill import NamedSkill, find_skill
from skillopt_airflow.training.run.run import TrainingRun
from skillopt_airflow.training.run.run_corpus import store_corpus
from skillopt_airflow.training.run.run_record import RunRecord
from skillopt_airflow.training.step.seed_and_final import opened, seed_plan, store_seed

if TYPE_CHECKING:
    from skillopt_airflow.quality.quality_report import QualityReport
    from skillopt_airflow.store.artifacts import ArtifactStore
    from skillopt_airflow.store.data.files import DataFiles

log = logging.getLogger(__name__)


class Beginning(NamedTuple):
    """The part of a run's record that only a training has."""

    smallest_gains: tuple[SmallestGain, ...] = ()
    init_version: str = ""
    stated: StatedScores | None = None


NO_TRAINING = Beginning()


def prepare_training(run: TrainingRun, config: TrainConfig, stated: StatedScores | None = None) -> list[JsonObject]:
    """Store everything that a run needs, or nothing but what is wrong with its data; return the seed's chunks.

    Args:
        stated: the scores that the authors of its preset state.

    Raises:
        SkillOptError: of the kind that says what is wrong; of the run nothing else has been stored then.
    """
    # A bucket that is missing or closed shows here, not after the training.
    run.store.list_keys(run.keys.folder)
    artifacts = published_skills(run.connections, config.storage, run.ref.benchmark, str(config.model.target))
    artifacts.list_versions()
    check_unchanged(run, config)
    init = _init_skill(run, config, artifacts)
    seed = opened(init.document, config)
    records, notes = read_splits(run.ref.benchmark, config, run.connections.s3_client(config.storage))
    source = f"data.uri = {config.data.uri}"
    items, quality = checked_items(run, config, source, records, training_needs(config, records), notes)
    prices = run.connections.prices(config)
    check_affordable(config, items, prices)
    check_groups(config, _groups(_gated(config, items)))
    image = run.connections.image(config)
    items, corpus = store_files(run, items, files_of(run, config)), store_corpus(run, config)
    check_item_images(run, config, items)
    check_same_inputs(run, items, seed, image, corpus)
    gated = _gated(config, items)
    look = artifacts.looks.next_number(marks_of(gated[publish_split(gated)]))
    begun = Beginning(smallest_gains(config, _groups(gated), look), init.version, stated)
    settle(run, config, items, quality, image, prices, begun, corpus=corpus)
    store_seed(run, init, seed)
    tell_size(run)
    return seed_plan(run)


def _init_skill(run: TrainingRun, config: TrainConfig, artifacts: "ArtifactStore") -> NamedSkill:
    """Return the skill to begin with; a run that has begun with the champion stays with that version."""
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
    """Refuse knobs that make no sense with these models and items.

    Raises:
        ConfigError: a budget in dollars without a price, or a protected item that no gate looks at.
    """
    check_priced(config, prices)
    rules = config.evaluation
    usable = [item.id for item in items[Split.VAL][: rules.limit(Split.VAL)] if not item.unusable]
    unknown = unknown_protected_items(usable, rules)
    if unknown:
        raise ConfigError(
            f"evaluation.gate_protected_items: the selection split has no usable item {', '.join(unknown)}; name "
            "ids of items that can run"
        )


def check_priced(config: TrainConfig, prices: Prices, asked: Collection[Role] = MODEL_ROLES) -> None:
    """Refuse a budget in dollars that nobody could count.

    Raises:
        ConfigError: the price of a model that is asked is not known.
    """
    if problem := missing_price(prices, config, asked):
        raise ConfigError(problem)


def check_item_images(run: TrainingRun, config: TrainConfig, items: Items) -> None:
    """Refuse a run whose items need images that are nowhere, or an engine that cannot make them.

    Raises:
        ConfigError: the sandboxes are pods, which cannot have images of items; or an image may not be pulled.
        ImageMissing: named images are missing; the text lists them all.
    """
    used = [item for rows in items.values() for item in rows if item.image is not None]
    if not used:
        return
    if config.sandbox.engine == "kubernetes":
        raise ConfigError(
            "sandbox.engine = kubernetes: the items bring repositories, whose images are built on a Docker engine and "
            "whose tests run there; set sandbox.engine to docker"
        )
    names = {item.image.name for item in used if item.image and item.image.name}
    if names:
        check_images(sorted(names), config.sandbox.item_registry)
        run.connections.item_images(config, sorted(names))
    log.info("%d items have a repository of their own, whose image is built when one of them first runs", len(used))


OF_NO_STEP = ("regate", "retention", "alerts")
"""Groups of knobs on which nothing rests that a training has stored."""


def check_unchanged(run: TrainingRun, config: TrainConfig) -> None:
    """Refuse other settings for a run that is prepared again, such as after clearing.

    Raises:
        ConfigError: it has states of other settings; the text names the keys.
    """
    former = run.store.find_model(run.keys.config, RunRecord)
    if former is None:
        return
    paths = changed_paths(former.config, config)
    changed = [path for path in paths if path.partition(".")[0] not in OF_NO_STEP]
    if changed and run.store.exists(run.keys.runtime_state):
        raise ConfigError(
            f"run {run.ref.run} has steps under other settings, and its settings changed since: {', '.join(changed)}; "
            "trigger a new run, which finds the finished rollouts of this one"
        )


def check_same_inputs(run: TrainingRun, items: Items, seed: SkillDocument, image: str, corpus: str = "") -> None:
    """Refuse other data, another seed skill, rollout program or corpus for a run that is prepared again.

    Another image may be the same program, such as one that was built anew, whose rollouts are stored under one name.

    Raises:
        ConfigError: it has states of others; the text names them.
    """
    from skillopt_airflow.store.data.data_manifest import DataManifest, data_manifest

    if not run.store.exists(run.keys.runtime_state):
        return
    before = run.store.get_model(run.keys.data_manifest, DataManifest).splits
    now = data_manifest(run.config.data, items).splits
    changed = [f"the {split} split" for split in now if split not in before or before[split] != now[split]]
    changed += ["the seed skill"] if run.skill(0).sha256 != seed.sha256 else []
    # Not by `run.record`, which is settled anew.
    former = run.store.get_model(run.keys.config, RunRecord)
    program = rollout_program(former.config, image, benchmarks.folder(run.ref.benchmark))
    if former.program != program:
        changed.append("the program of its rollouts (its task or adapter, or the sandbox image)")
    changed += ["the corpus"] if former.corpus != corpus else []
    changed += ["the benchmark's guidance"] if former.guidance != benchmarks.guidance(run.ref.benchmark) else []
    if changed:
        raise ConfigError(
            f"run {run.ref.run} has steps that rest on other inputs; changed since: {', '.join(changed)}; trigger a "
            "new run, which finds the finished rollouts of this one"
        )


def settle(
    run: TrainingRun,
    config: TrainConfig,
    items: Items,
    quality: "QualityReport",
    image: str,
    prices: Prices,
    begun: Beginning = NO_TRAINING,
    *,
    corpus: str = "",
) -> None:
    """Store the configuration and the items that all stages of the run see."""
    from skillopt_airflow.store.data.data_manifest import data_manifest
    from skillopt_airflow.store.data.items import save_items

    created, prices = _beginning(run, prices)
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
    notes = [*unusable_items(items), *changed_since_listed(run, config, items)]
    notes += [*shared_contents(items), *shared_documents(items)]
    for sentence in notes:
        log.warning("%s", sentence)
    store_quality(run, quality.model_copy(update={"notes": (*quality.notes, *notes)}))
    for split, rows in items.items():
        save_items(run.store, run.keys.items(split), rows)
    run.store.put_model(run.keys.data_manifest, data_manifest(config.data, items))
    run.store.put_model(run.keys.config, record)


def _beginning(run: TrainingRun, prices: Prices) -> tuple[str, Prices]:
    """Return when the run began, and what its models cost then; these are the present prices before its first state."""
    # Not `run.record`, which is settled anew.
    former = run.store.find_model(run.keys.config, RunRecord)
    if former is None:
        return datetime.now(UTC).isoformat(timespec="seconds"), prices
    return former.created, former.prices if run.store.exists(run.keys.runtime_state) else prices


def tell_size(run: TrainingRun) -> None:
    """Log how large the run is; log and store what it may cost."""
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
    made = estimated(run, sizes)
    run.store.put_model(run.keys.estimate, made.totals)
    for line in made.lines():
        log.info("%s", line)
    if run.config.model.harness == "chat" and isinstance(run.benchmark, ShowsFiles):
        log.info("  what the benchmark shows of an item's files or documents is not counted; a step's usage tells it")
    log.info(
        "smallest gains that are found in four of five cases, if every answer is a coin's toss, one for a whole group:"
    )
    for gain in run.record.smallest_gains:
        log.info("  %s", gain)


def estimated(run: TrainingRun, sizes: Mapping[Split, int]) -> Estimate:
    """Estimate calls, tokens and price of the whole run from the prompts of its first training items."""
    skill = run.skill(0)
    first = run.items_of(Split.TRAIN, ids(run.item_refs(Split.TRAIN)[:LOOKED_AT]))
    prompt = Prompt.of(run.benchmark, str(run.config.model.target), first)
    return estimate_training(run.config, sizes, prompt, len(skill.text), run.record.steps_in_epoch, run.record.prices)


def _gated(config: TrainConfig, items: Items) -> dict[Split, list[Item]]:
    """Return the items by which gates decide."""
    found = {split: rows[: config.evaluation.limit(split)] for split, rows in items.items() if split is not Split.TRAIN}
    return {split: rows if split is Split.VAL else deciding_items(split, rows) for split, rows in found.items()}


def _groups(items: Mapping[Split, Sequence[Item]]) -> dict[Split, list[str]]:
    return {split: [item.group for item in of_split] for split, of_split in items.items()}


def files_of(run: TrainingRun, config: TrainConfig) -> "DataFiles":
    """Return the files below the run's data set."""
    from skillopt_airflow.store.data.files import DataFiles

    return DataFiles.of(config.data, benchmarks.folder(run.ref.benchmark), run.connections.s3_client(config.storage))
