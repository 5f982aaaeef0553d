"""The data quality checks of a run: results are stored, and a failure stops the run."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from skillopt_airflow.core.errors import ObjectMissing
from skillopt_airflow.core.values.skill import SkillDocument
from skillopt_airflow.core.values.types import DATA_SPLITS, Item, Split
from skillopt_airflow.quality.fresh_items import MeasuredItems, check_fresh
from skillopt_airflow.quality.quality_report import QualityReport
from skillopt_airflow.quality.records import check_rollouts
from skillopt_airflow.report.html_pages import render
from skillopt_airflow.store.data.item_tables import load_items
from skillopt_airflow.store.keys import RunKeys
from skillopt_airflow.training.run.run import PRIVATE_SPLITS, TrainingRun

RowsByTable = Mapping[str, Sequence[Mapping[str, Any]]]

log = logging.getLogger(__name__)


def store_quality(run: TrainingRun, report: QualityReport) -> None:
    """Store a result as JSON, and all results of the run as a page."""
    keys = {"records": run.keys.quality, "rollouts": run.keys.rollout_quality}
    run.store.put_model(keys[report.suite], report)
    reports = [stored for key in keys.values() if (stored := run.store.find_model(key, type(report))) is not None]
    run.store.put_text(run.keys.quality_page, render(run.ref.benchmark, run.ref.run, reports))


def stop_if_failed(run: TrainingRun, report: QualityReport) -> None:
    """Store the result of a failed suite, even if nothing else of the run is stored, and raise DataQualityError."""
    if not report.success:
        store_quality(run, report)
        log.error("%s has all rows that failed", run.store.address(run.keys.quality_page))
    report.raise_for_failures()


def check_fresh_items(
    run: TrainingRun,
    records: QualityReport,
    items: Sequence[Item],
    trained: Mapping[Split, Sequence[Item]],
    nights: MeasuredItems,
) -> QualityReport:
    """Add the results of the fresh partitions' suite to those of the partition's records.

    Args:
        trained: the dataset of the champion's training. Items of train and val must not occur again; val and test are
            the reference for the distribution.
        nights: the other nights' items; repeated items would count twice.

    Raises:
        DataQualityError: items fail expectations; the message names them.
    """
    learned = {split: _usable(trained[split]) for split in (Split.TRAIN, Split.VAL)}
    reference = [*trained[Split.VAL], *trained[Split.TEST]]
    found = check_fresh(records.source, _usable(items), learned, _usable(reference), nights)
    report = records.with_more(found)
    stop_if_failed(run, report)
    return report


def check_measured(
    run: TrainingRun, split: Split, skills: Mapping[str, SkillDocument], samples: Sequence[int] | None = None
) -> None:
    """Check the stored rollouts of skills on a split before they are compared, by default the evaluation's samples.

    Raises:
        DataQualityError: rows fail expectations; the message names them.
    """
    check_tables(run, [split], measured_tables(run, split, skills, samples))


def measured_tables(
    run: TrainingRun, split: Split, skills: Mapping[str, SkillDocument], samples: Sequence[int] | None = None
) -> RowsByTable:
    """Return the unchecked rows that compare skills, by skill and sample; see `check_measured`."""
    items = run.item_refs(split)
    own = split in PRIVATE_SPLITS
    return {
        f"{name} skill, sample {sample}": run.rollouts.unparsed(
            run.rollout_key(split, skill, sample), run.ref.run, items, own=own
        )
        for name, skill in skills.items()
        for sample in (range(run.config.evaluation.samples) if samples is None else samples)
    }


def check_tables(run: TrainingRun, splits: Sequence[Split], tables: RowsByTable) -> None:
    """Check rows of `measured_tables`, also of several targets; replace the run's result. Raise DataQualityError."""
    item_ids = {item.id for split in splits for item in run.item_refs(split)}
    report = check_rollouts(f"{run.ref.run} on {', '.join(splits)}", tables, item_ids)
    store_quality(run, report)
    report.raise_for_failures()


def items_of(run: TrainingRun, trained: str) -> Mapping[Split, list[Item]] | None:
    """Return another run's items by split; None if the bucket no longer has them."""
    keys = RunKeys(run.ref.storage.prefix, run.ref.benchmark, trained)
    try:
        return {split: load_items(run.store, keys.items(split)) for split in DATA_SPLITS}
    except ObjectMissing:
        return None


def _usable(items: Sequence[Item]) -> list[Item]:
    return [item for item in items if not item.unusable]
