"""The rollouts of a skill on a split, whatever runs have stored them."""

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from skillopt_airflow.core.errors import DataError, ObjectMissing
from skillopt_airflow.core.resource_groups import StorageGroup
from skillopt_airflow.pipeline.dag_ids import train_dag_id
from skillopt_airflow.training.benchmark_settings import benchmark_config
from skillopt_airflow.training.connections import published_skills
from skillopt_airflow.ui import buckets
from skillopt_airflow.ui.trajectory_query import TrajectoryQuery
from skillopt_airflow.ui.trajectory_subject import Choice, Subject, others

if TYPE_CHECKING:
    import pyarrow as pa

    from skillopt_airflow.store.objects import ObjectStore
    from skillopt_airflow.store.rollout_browser import Partition, Variant
    from skillopt_airflow.store.rollout_table import RolloutKey

PAGE = 50
"""Rows of a page."""
DIGITS = 12
"""Digits of a skill's hash that its rollouts are found by."""


class RolledOut(NamedTuple):
    """A page of what a benchmark has rollouts of."""

    benchmark: str
    rows: "list[tuple[Partition, str]]"
    """Each with the address of its rollouts."""
    together: int
    page: int
    last: int

    @property
    def train_dag(self) -> str:
        """Return the id of the DAG of the benchmark's trainings."""
        return train_dag_id(self.benchmark)


def of_skill(benchmark: str, asked: TrajectoryQuery) -> Subject:
    """Return a skill's rollouts on a split that the address asks for.

    Raises:
        DataError: the skill has none, or none for the target or under the harness that is named.
        SkillOptError: they cannot be read.
    """
    from skillopt_airflow.store.rollout_browser import RolloutBrowser

    config = benchmark_config(benchmark)
    store = buckets.open_bucket(config.storage, config.storage.bucket)
    browser = RolloutBrowser(store, config.storage.prefix)
    there = browser.partitions(benchmark)
    partition = _closest([one for one in there if one.skill == asked.skill[:DIGITS]], asked)
    beside = {one.skill: one for one in there if one._replace(skill=partition.skill) == partition}
    names = _names(config.storage, benchmark, partition.target, beside)
    variants = browser.variants(partition)
    variant = variants[min(asked.variant, len(variants) - 1)]
    other = beside.get(asked.other[:DIGITS])
    other = None if other == partition else other
    other_key, notes = (None, ()) if other is None else _like(browser.variants(other), variant)
    own = [one for one in there if one.skill == partition.skill and one.target == partition.target]
    own = [one for one in own if one.harness == partition.harness]
    return Subject(
        title=f"{names[partition.skill]} on the {partition.split} split, {partition.target}, {partition.harness}",
        benchmark=benchmark,
        store=store,
        prefix=config.storage.prefix,
        rules=config.evaluation,
        choices=(
            *(Choice(name, "", {value: value}, value) for name, value in _hidden(partition).items()),
            Choice("split", "Split", {one.split.value: one.split.value for one in own}, partition.split.value),
            Choice("draw", "Draw", _draws(own, partition), str(partition.draw)),
            Choice("variant", "Settings", _variants(variants), str(variants.index(variant))),
            Choice("other", "Beside", others(names, partition.skill), "" if other is None else other.skill),
        ),
        key=variant.key,
        label=names[partition.skill],
        other=other_key,
        other_label="" if other is None else names[other.skill],
        types=_types(store, config.storage.prefix, variant),
        notes=notes,
    )


def _hidden(partition: "Partition") -> dict[str, str]:
    return {"target": partition.target, "harness": partition.harness, "skill": partition.skill}


def _closest(there: "Sequence[Partition]", asked: TrajectoryQuery) -> "Partition":
    """Return the partition of the target and harness, where they are asked for, that has most of the rest.

    Raises:
        DataError: there is none.
    """
    named = {name: value for name, value in (("target", asked.target), ("harness", asked.harness)) if value}
    own = [one for one in there if all(getattr(one, name) == value for name, value in named.items())]
    if not own:
        under = "".join(f", {name} {value!r}" for name, value in named.items())
        raise DataError(
            f"there are no rollouts of skill {asked.skill!r}{under}; they may be gone by retention.trajectory_days"
        )
    return max(own, key=lambda one: (one.split == asked.split, one.draw == asked.draw))


def _names(storage: StorageGroup, benchmark: str, target: str, skills: Iterable[str]) -> dict[str, str]:
    """Return what people call skills by the beginnings of their hashes: the version, where one is published."""
    published = published_skills(buckets.KeptConnections(), storage, benchmark, target).list_versions()
    versions = {version.partition("-")[2]: version for version in published}
    return {skill: versions.get(skill, f"skill {skill}") for skill in skills}


def _draws(own: "Sequence[Partition]", partition: "Partition") -> dict[str, str]:
    draws = sorted({one.draw for one in own if one.split == partition.split})
    return {str(number): f"draw {number + 1}" for number in draws}


def _variants(variants: "Sequence[Variant]") -> dict[str, str]:
    return {
        str(number): f"{one.rows:,} of {one.key.image[:40]}, settings {one.key.settings_sha256[:8]}"
        for number, one in enumerate(variants)
    }


def _like(variants: "Sequence[Variant]", variant: "Variant") -> "tuple[RolloutKey, tuple[str, ...]]":
    """Return the rollouts of another skill under the same settings; under others, with a note, where there are none."""
    for one in variants:
        if (one.key.settings_sha256, one.key.image) == (variant.key.settings_sha256, variant.key.image):
            return one.key, ()
    return variants[0].key, ("The two skills ran under different settings or programs: not only they differ here.",)


def _types(store: "ObjectStore", prefix: str, variant: "Variant") -> "pa.Table | None":
    """Return the types of the items, as a run that stored some of the rollouts has them."""
    from skillopt_airflow.store.items import load_ref_table
    from skillopt_airflow.store.keys import RunKeys

    key = RunKeys(prefix, variant.key.benchmark, variant.run).items(variant.key.split)
    try:
        return load_ref_table(store, key, ["id", "task_types"])
    except ObjectMissing:
        return None


def index(benchmark: str, asked: TrajectoryQuery) -> RolledOut:
    """Return what a benchmark has rollouts of, the page of it that is asked for.

    Raises:
        SkillOptError: it cannot be read.
    """
    from skillopt_airflow.store.rollout_browser import RolloutBrowser

    storage = benchmark_config(benchmark).storage
    there = RolloutBrowser(buckets.open_bucket(storage, storage.bucket), storage.prefix).partitions(benchmark)
    last = max(1, math.ceil(len(there) / PAGE))
    page = min(asked.page, last)
    rows = [(one, TrajectoryQuery().address(**one._asdict())) for one in there[(page - 1) * PAGE : page * PAGE]]
    return RolledOut(benchmark, rows, len(there), page, last)
