"""The data quality suites of a run: their results are kept, and a failure stops the run."""

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from skillopt_airflow.core.errors import ObjectMissing
from skillopt_airflow.core.values.skill import SkillDocument
from skillopt_airflow.core.values.types import DATA_SPLITS, Item, Split
from skillopt_airflow.training.run.run import OF_ONE_RUN, TrainingRun

if TYPE_CHECKING:
    from skillopt_airflow.quality.fresh_items import MeasuredItems
    from skillopt_airflow.quality.quality_report import QualityReport

RowsByTable = Mapping[str, Sequence[Mapping[str, Any]]]

log = logging.getLogger(__name__)


def store_quality(run: TrainingRun, report: "QualityReport") -> None:
    """Keep a result as JSON, and all that the run has as a page."""
    from skillopt_airflow.report.html_pages import render

    keys = {"records": run.keys.quality, "rollouts": run.keys.rollout_quality}
    run.store.put_model(keys[report.suite], report)
    reports = [stored for key in keys.values() if (stored := run.store.find_model(key, type(report))) is not None]
    run.store.put_text(run.keys.quality_page, render(run.ref.benchmark, run.ref.run, reports))


def stop_if_failed(run: TrainingRun, report: "QualityReport") -> None:
    """Keep the result of a suite that failed, although nothing else of the run may be there.

    Raises:
        DataQualityError: it failed.
    """
    if not report.success:
        store_quality(run, report)
        log.error("%s has all rows that failed", run.store.address(run.keys.quality_page))
    report.raise_for_failures()


def checked_fresh(
    run: TrainingRun,
    records: "QualityReport",
    items: Sequence[Item],
    trained: Mapping[Split, Sequence[Item]],
    nights: "MeasuredItems",
) -> "QualityReport":
    """Return what the suite of fresh partitions found, behind what was found about the partition's records.

    Args:
        trained: the data set of the champion's training; train and val must not be met again, val and test are what
            the items should be like.
        nights: the other nights' items; one that is met again would count as evidence twice.

    Raises:
        DataQualityError: items that miss expectations; the text names them.
    """
    from skillopt_airflow.quality.fresh_items import check_fresh

    learned = {split: _usable(trained[split]) for split in (Split.TRAIN, Split.VAL)}
    reference = [*trained[Split.VAL], *trained[Split.TEST]]
    found = check_fresh(records.source, _usable(items), learned, _usable(reference), nights)
    report = records.with_more(found)
    stop_if_failed(run, report)
    return report


def check_measured(
    run: TrainingRun, split: Split, skills: Mapping[str, SkillDocument], draws: Sequence[int] | None = None
) -> None:
    """Check the stored rollouts of some skills on a split before anything is concluded from them.

    Args:
        draws: of each item; those of an evaluation if None.

    Raises:
        DataQualityError: rows that miss expectations; the text names them.
    """
    check_tables(run, [split], measured_tables(run, split, skills, draws))


def measured_tables(
    run: TrainingRun, split: Split, skills: Mapping[str, SkillDocument], draws: Sequence[int] | None = None
) -> RowsByTable:
    """Return the unchecked rows from which skills are compared, by skill and draw; see `check_measured`."""
    items = run.item_refs(split)
    own = split in OF_ONE_RUN
    return {
        f"{name} skill, draw {draw}": run.rollouts.unparsed(
            run.rollout_key(split, skill, draw), run.ref.run, items, own=own
        )
        for name, skill in skills.items()
        for draw in (range(run.config.evaluation.draws) if draws is None else draws)
    }


def check_tables(run: TrainingRun, splits: Sequence[Split], tables: RowsByTable) -> None:
    """Check rows of `measured_tables`, of one target and harness or of several; raise as `check_measured` does.

    The result is the run's: what was found before about other tables gives way to it.
    """
    from skillopt_airflow.quality.records import check_rollouts

    item_ids = {item.id for split in splits for item in run.item_refs(split)}
    report = check_rollouts(f"{run.ref.run} on {', '.join(splits)}", tables, item_ids)
    store_quality(run, report)
    report.raise_for_failures()


def items_of(run: TrainingRun, trained: str) -> Mapping[Split, list[Item]] | None:
    """Return the items of another run of the benchmark; None if this run's bucket no longer has them."""
    from skillopt_airflow.store.data.items import load_items
    from skillopt_airflow.store.keys import RunKeys

    keys = RunKeys(run.ref.storage.prefix, run.ref.benchmark, trained)
    try:
        return {split: load_items(run.store, keys.items(split)) for split in DATA_SPLITS}
    except ObjectMissing:
        return None


def _usable(items: Sequence[Item]) -> list[Item]:
    return [item for item in items if not item.unusable]
