"""Before the first model call: settle the configuration, check what can be checked, store the items."""

import logging
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from include.core import schedule
from include.core.config import DataGroup, TrainConfig
from include.core.errors import ConfigError, DataError
from include.core.skill import SkillDocument
from include.core.splits import split_by_ratio, take
from include.core.types import Item, JsonObject, Split
from include.models import connection
from include.pipeline import params
from include.pipeline.run import PROJECT, RunRecord, RunRef, TrainingRun, object_store, s3_client
from include.quality.splits import check_splits
from include.sandbox.engine import image_digest
from include.store.datasets import ALL, read_records
from include.store.items import save_items
from include.store.keys import run_name
from include.store.manifest import data_manifest

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

log = logging.getLogger(__name__)


def prepare_run(benchmark: str, dag_run_id: str, form: Mapping[str, Any], conf: Mapping[str, Any]) -> TrainingRun:
    """Everything a run needs, stored, or nothing at all.

    Args:
        benchmark: the benchmark's name.
        dag_run_id: Airflow's id of the run.
        form: the run's Params.
        conf: what the run was triggered with; Airflow would pass over a key that is no Param.

    Raises:
        SkillOptError: of the kind that says what is wrong; nothing of the run has been stored then.
    """
    config = _configured(benchmark, form, conf)
    store = object_store(config.storage, config.storage.bucket)
    # A bucket that is missing or closed shows here, not after the training.
    object_store(config.storage, config.storage.artifact_bucket).list_keys(
        f"{config.storage.prefix}skills/{benchmark}/"
    )
    ref = RunRef(benchmark=benchmark, run=run_name(dag_run_id), storage=config.storage)
    run = TrainingRun(ref, store)

    seed = _seed_skill(benchmark)
    records = _records(config.data, PROJECT / "benchmarks" / benchmark, s3_client(config.storage))
    quality = check_splits(
        config.data.uri,
        {str(split): rows for split, rows in records.items()},
        run.benchmark.text_columns,
        run.benchmark.list_columns,
    )
    quality.raise_for_failures()
    items = {split: _items(run, split, rows) for split, rows in records.items()}
    image = _reachable(config)

    run.record = RunRecord(
        benchmark=benchmark,
        run=ref.run,
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        config=config,
        image=image,
        steps_in_epoch=schedule.steps_in_epoch(len(items[Split.TRAIN]), config.train),
    )
    store.put_model(run.keys.quality, quality)
    for split, rows in items.items():
        save_items(store, run.keys.items(split), rows)
    store.put_model(run.keys.data_manifest, data_manifest(config.data, items))
    store.put_text(run.keys.skill(0), seed.text)
    store.put_model(run.keys.config, run.record)
    _log_size(run.record, items)
    return run


def _configured(benchmark: str, form: Mapping[str, Any], conf: Mapping[str, Any]) -> TrainConfig:
    base = params.benchmark_config(benchmark)
    unknown = sorted(set(conf) - set(params.form(base)))
    if unknown:
        raise ConfigError(
            f"conf: no such key: {', '.join(unknown)}; a knob goes into overrides, such as "
            '{"overrides": {"optimizer.learning_rate": 2}}'
        )
    config = params.run_config(base, form)
    model = config.model
    named = {
        "target": connection.model_name(model.target_conn_id, model.target),
        "optimizer": connection.model_name(model.optimizer_conn_id, model.optimizer),
    }
    return config.model_copy(update={"model": model.model_copy(update=named)})


def _reachable(config: TrainConfig) -> str:
    """The image's digest, after target, optimizer and engine have shown that they are there."""
    model = config.model
    connection.target_upstream(model.target_conn_id, model.target)
    connection.optimizer_model(model.optimizer_conn_id, model.optimizer)
    for conn_id in dict.fromkeys((model.target_conn_id, model.optimizer_conn_id)):
        connection.check(conn_id)
    return image_digest(config.sandbox.image)


def _seed_skill(benchmark: str) -> SkillDocument:
    path = PROJECT / "skills" / benchmark / "initial.md"
    if not path.is_file():
        raise ConfigError(f"{path}: the seed skill is missing; write the Markdown that the training should start from")
    skill = SkillDocument(path.read_text(encoding="utf-8"))
    log.info("seed skill %s, %d characters, %d protected regions", path, len(skill.text), len(skill.protected))
    return skill


def _records(data: DataGroup, root: Path, client: "S3Client") -> dict[Split, list[JsonObject]]:
    read = read_records(data.uri, root, data.split_mode, client)
    if ALL in read:
        splits = split_by_ratio(read[ALL], data.split_ratio, data.split_seed)
    else:
        splits = {Split(name): rows for name, rows in read.items()}
    return {split: take(rows, data.limit) for split, rows in splits.items()}


def _items(run: TrainingRun, split: Split, records: Sequence[JsonObject]) -> list[Item]:
    items = []
    for row, record in enumerate(records):
        try:
            items.append(run.benchmark.item(record))
        except DataError as error:
            raise DataError(f"{split} row {row}: {error}") from error
    return items


def _log_size(record: RunRecord, items: Mapping[Split, Sequence[Item]]) -> None:
    train = record.config.train
    log.info("items: %s", ", ".join(f"{len(rows)} {split}" for split, rows in items.items()))
    log.info("%d epochs of %d steps", train.num_epochs, record.steps_in_epoch)
    left_out = len(items[Split.TRAIN]) - record.steps_in_epoch * train.batch_size
    if left_out > 0:
        log.warning(
            "train.steps_per_epoch = %d leaves out %d of %d training items in every epoch",
            train.steps_per_epoch,
            left_out,
            len(items[Split.TRAIN]),
        )
