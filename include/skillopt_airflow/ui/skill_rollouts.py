"""The rollouts of a skill on a split, whatever runs have stored them."""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from skillopt_airflow.core.errors import DataError, ObjectMissing
from skillopt_airflow.core.resource_groups import StorageGroup
from skillopt_airflow.pipeline.dag_ids import train_dag_id
from skillopt_airflow.training.benchmark_settings import benchmark_config
from skillopt_airflow.training.connections import published_skills
from skillopt_airflow.ui import buckets
from skillopt_airflow.ui.skill_page import MOST_CHOICES
from skillopt_airflow.ui.trajectory_query import TrajectoryQuery
from skillopt_airflow.ui.trajectory_subject import Choice, Subject, others

if TYPE_CHECKING:
    import pyarrow as pa

    from skillopt_airflow.store.objects import ObjectStore
    from skillopt_airflow.store.rollout_browser import Variant
    from skillopt_airflow.store.rollout_partitions import Partition
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
    from skillopt_airflow.store.rollout_partitions import RolloutPartitions

    config = benchmark_config(benchmark)
    store, prefix = buckets.open_bucket(config.storage, config.storage.bucket), config.storage.prefix
    browser, partitions = RolloutBrowser(store, prefix), RolloutPartitions(store, prefix)
    there = partitions.of_skill(benchmark, asked.skill[:DIGITS], asked.target)
    partition = _closest(there, asked, config.model.harness)
    while not (variants := browser.variants(partition)):
        # The cleanup has removed it since it was listed.
        there.remove(partition)
        partition = _closest(there, asked, config.model.harness)
    skills = [*partitions.skills_beside(partition), partition.skill]
    names = _names(config.storage, benchmark, partition.target, skills)
    variant = variants[min(asked.variant, len(variants) - 1)]
    other = asked.other[:DIGITS]
    other = other if other in names and other != partition.skill else ""
    other_key, notes = _like(browser.variants(partition._replace(skill=other)), variant) if other else (None, ())
    return Subject(
        title=f"{names[partition.skill]} on the {partition.split} split, {partition.target}, {partition.harness}",
        benchmark=benchmark,
        store=store,
        prefix=prefix,
        rules=config.evaluation,
        choices=(
            *_choices([one for one in there if one.target == partition.target], partition),
            Choice("variant", "Settings", _variants(variants), str(variants.index(variant))),
            _beside(names, partition.skill, other),
        ),
        key=variant.key,
        label=names[partition.skill],
        other=other_key,
        other_label=names.get(other, ""),
        types=_types(store, prefix, variant),
        notes=notes,
    )


def _choices(there: "Sequence[Partition]", partition: "Partition") -> tuple[Choice, ...]:
    """Return what says which partition is meant, with what there is of the skill and the target."""
    own = [one for one in there if one.harness == partition.harness]
    draws = sorted({one.draw for one in own if one.split == partition.split})
    return (
        *(Choice(name, "", {value: value}, value) for name, value in _hidden(partition).items()),
        Choice("harness", "Harness", {one.harness: one.harness for one in there}, partition.harness),
        Choice("split", "Split", {one.split.value: one.split.value for one in own}, partition.split.value),
        Choice("draw", "Draw", {str(number): f"draw {number + 1}" for number in draws}, str(partition.draw)),
    )


def _hidden(partition: "Partition") -> dict[str, str]:
    return {"target": partition.target, "skill": partition.skill}


def _beside(names: Mapping[str, str], skill: str, other: str) -> Choice:
    """Return the choice of another skill: of the first of them, and of the one that the address names."""
    most = dict(list(names.items())[:MOST_CHOICES])
    label = "Beside" if len(most) == len(names) else f"Beside ({len(most):,} of {len(names):,} skills)"
    return Choice("other", label, others(most | ({other: names[other]} if other else {}), skill), other)


def _closest(there: "Sequence[Partition]", asked: TrajectoryQuery, usual: str) -> "Partition":
    """Return the partition of the target and harness, where they are asked for, that has most of the rest.

    Where no harness is asked for, the usual one comes first.

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
    return max(own, key=lambda one: (one.split == asked.split, one.draw == asked.draw, one.harness == usual))


def _names(storage: StorageGroup, benchmark: str, target: str, skills: Iterable[str]) -> dict[str, str]:
    """Return what people call skills by the beginnings of their hashes: the version, where one is published.

    The newest version comes first, what is not published last.
    """
    published = published_skills(buckets.KeptConnections(), storage, benchmark, target).list_versions()
    versions = {version.partition("-")[2]: version for version in published}
    ordered = sorted(skills, key=lambda skill: versions.get(skill, ""), reverse=True)
    return {skill: versions.get(skill, f"skill {skill}") for skill in ordered}


def _variants(variants: "Sequence[Variant]") -> dict[str, str]:
    return {
        str(number): f"{one.rows:,} of {one.key.image[:40]}, settings {one.key.settings_sha256[:8]}"
        for number, one in enumerate(variants)
    }


def _like(variants: "Sequence[Variant]", variant: "Variant") -> "tuple[RolloutKey | None, tuple[str, ...]]":
    """Return the rollouts of another skill under the same settings; under others, with a note, where there are none.

    None where it has no rollouts of the draw at all.
    """
    for one in variants:
        if (one.key.settings_sha256, one.key.image) == (variant.key.settings_sha256, variant.key.image):
            return one.key, ()
    if not variants:
        return None, ("The skill beside has no rollouts of this draw.",)
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
    from skillopt_airflow.store.rollout_partitions import RolloutPartitions

    storage = benchmark_config(benchmark).storage
    there = RolloutPartitions(buckets.open_bucket(storage, storage.bucket), storage.prefix).of_benchmark(benchmark)
    last = max(1, math.ceil(len(there) / PAGE))
    page = min(asked.page, last)
    rows = [(one, TrajectoryQuery().address(**one._asdict())) for one in there[(page - 1) * PAGE : page * PAGE]]
    return RolledOut(benchmark, rows, len(there), page, last)
