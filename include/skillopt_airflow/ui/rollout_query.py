"""The question of a page of rollouts: the parameters of its address, and which rollouts of which skill they ask for."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self
from urllib.parse import urlencode

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field, model_validator

from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.errors import DataError, ObjectMissing
from skillopt_airflow.core.values.types import Split, Status
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config
from skillopt_airflow.training.run.connections import published_skills
from skillopt_airflow.training.run.run import PRIVATE_SPLITS, TrainingRun
from skillopt_airflow.training.run.run_record import RunRef
from skillopt_airflow.ui import buckets

if TYPE_CHECKING:
    import pyarrow as pa

    from skillopt_airflow.store.objects import ObjectStore
    from skillopt_airflow.store.tables.rollout_browser import Variant
    from skillopt_airflow.store.tables.rollout_table import Partition, RolloutKey
    from skillopt_airflow.training.report.reporting import PlannedStage, SplitRollouts

MAX_SKILLS = 300
"""Skills that can be chosen for a comparison, the newest versions first; the address can name any."""
DIGITS = 12
"""Digits of a skill's hash that its rollouts are found by."""


class RolloutQuery(BaseModel):
    """The parameters; one that is left out has its default."""

    model_config = ConfigDict(frozen=True)

    moment: str = ""
    """Of a run, as `Moment.name`; empty for the newest that has rollouts."""
    at: str = Field(default="", exclude=True)
    """Moment of the form that the other parameters were chosen in; empty where no form was."""
    at_stage: str = Field(default="", exclude=True)
    """Stage of that form."""
    stage: str = ""
    """Of the moment, by the name of its plan."""
    cell: int = Field(default=0, ge=0)
    """Of an evaluation under several targets and harnesses, by its place among them."""
    target: str = ""
    harness: str = ""
    split: Literal[""] | Split = ""
    skill: str = ""
    """Of a run, its key below the run's folder; else the beginning of its SHA-256, 12 digits."""
    draw: int = Field(default=0, ge=0)
    variant: int = Field(default=0, ge=0)
    """Where a skill has rollouts under several settings: the place of these, most rollouts first."""
    other: str = ""
    """Another skill to compare with; empty for none."""
    show: Literal["all", "success", "failure", "no_score", "won", "lost", "tied", "flipped"] = "all"
    status: Literal[""] | Status = ""
    task_type: str = ""
    text: str = ""
    within: Literal["names", "said"] = "names"
    """Where the text is looked for: in item ids and errors, or in what was said."""
    sort: Literal["item_id", "score", "other", "difference", "status", "tokens", "seconds"] = "item_id"
    order: Literal["up", "down"] = "up"
    page: int = Field(default=1, ge=1)
    mark: str = Field(default="", pattern=r"^[0-9a-f]*$")
    """The item that is opened, by the beginning of its fingerprint; empty for the list."""
    place: int = Field(default=0, ge=0)
    """The item by its place in the filtered list, from 1, where there is no mark; else where it was found there."""

    @model_validator(mode="before")
    @classmethod
    def _forget_skills_of_another_stage(cls, asked: dict[str, Any]) -> dict[str, Any]:
        """Leave out skills that a form was sent with only because it showed them, when its moment or stage changed."""
        shown = (("at", "moment"), ("at_stage", "stage"))
        if all(asked.get(of_form, "") in ("", asked.get(chosen)) for of_form, chosen in shown):
            return asked
        return {name: value for name, value in asked.items() if name not in ("skill", "other")}

    @property
    def compares(self) -> bool:
        return self.show in ("won", "lost", "tied", "flipped") or self.sort in ("other", "difference")

    @property
    def filters(self) -> bool:
        return self.show != "all" or bool(self.status or self.task_type or self.text)

    def address(self, **changes: object) -> str:
        """Return the address of the same page with other values, relative to it."""
        return f"?{urlencode(self.changed(**changes).model_dump(mode='json', exclude_defaults=True))}"

    def changed(self, **changes: object) -> Self:
        return self.model_validate(self.model_dump() | changes)


Asked = Annotated[RolloutQuery, Query()]


class Choice(NamedTuple):
    """A parameter that says which rollouts are meant, with the values that it may have."""

    parameter: str
    label: str
    options: Mapping[str, str]
    """What people read, by value."""
    chosen: str


class Subject(NamedTuple):
    """The rollouts that are asked for: some of one skill, maybe beside another skill's on the same items."""

    title: str
    benchmark: str
    store: "ObjectStore"
    prefix: str
    rules: EvaluationGroup
    """Say which score counts."""
    choices: tuple[Choice, ...]
    key: "RolloutKey | None" = None
    """None where nothing was rolled out."""
    label: str = ""
    """The skill, for people."""
    other: "RolloutKey | None" = None
    other_label: str = ""
    run: str = ""
    """The run whose failures count; those of any run if it is empty."""
    alone: bool = False
    """True if no other run rolls out these items, so that what others stored is passed over."""
    items: "pa.Table | None" = None
    """The items that count, with their types; those of every item if None."""
    types: "pa.Table | None" = None
    """Types by item, where they are stored."""
    planned: int | None = None
    """The number of items, where a plan says it."""
    rival: str = ""
    """The value of `other` by which the two skills that a gate compares are seen side by side."""
    notes: tuple[str, ...] = ()


def of_run(ref: RunRef, asked: RolloutQuery) -> Subject:
    """Return the rollouts of a run that the address asks for: of one stage and skill.

    Raises:
        ObjectMissing: the run has stored nothing yet.
        SkillOptError: its documents cannot be read.
    """
    from skillopt_airflow.training.champion.publication import as_published
    from skillopt_airflow.training.report import reporting

    run = TrainingRun(ref, buckets.KeptConnections())
    moments = reporting.reached_moments(run)
    stage = reporting.find_stage(run, moments, asked.moment, asked.stage)
    if stage.splits and stage.name.startswith(reporting.PUBLICATION):
        run = as_published(run, stage.name.removeprefix(reporting.PUBLICATION))
    labels = {moment.name: reporting.label_of(moment) for moment in moments}
    begun = Subject(
        title=labels[stage.moment.name],
        benchmark=ref.benchmark,
        store=run.store,
        prefix=ref.storage.prefix,
        rules=run.config.evaluation,
        choices=(Choice("moment", "Moment", labels, stage.moment.name),),
        run=ref.run,
    )
    if not stage.name:
        return begun
    model = run.config.model
    another = f" for {model.target}" if run.for_another_model else ""
    another = f" under {model.target}, {model.harness}" if stage.name == "score" else another
    begun = begun._replace(
        title=f"{begun.title}, {stage.names[stage.name]}{another}",
        choices=(*begun.choices, Choice("stage", "PlannedStage", stage.names, stage.name)),
    )
    if not stage.splits:
        return begun
    rival = reporting.rival_before(run, stage.moment) if stage.name == "evaluate" else ""
    return _with_skills(run, begun, stage, asked)._replace(rival=rival or "")


def _with_skills(run: TrainingRun, begun: Subject, stage: "PlannedStage", asked: RolloutQuery) -> Subject:
    """Return the subject with what is rolled out of a split, under which skill, and beside which one."""
    from skillopt_airflow.training.report.reporting import skills_of

    split = next((one for one in stage.splits if one == asked.split), next(iter(stage.splits)))
    plan = stage.splits[split]
    labels = dict(skills_of(run, stage.moment, stage.name, plan.skills))
    skill = asked.skill if asked.skill in labels else plan.skills[0]
    other = asked.other if asked.other in labels and asked.other != skill else ""
    draw = asked.draw if asked.draw in plan.draws else plan.draws[0]
    # The page of an item lists nothing.
    items = None if asked.mark else _items(run, split, plan)

    def key(name: str) -> "RolloutKey":
        return run.rollout_key(split, run.document(f"{run.keys.folder}{name}"), draw)

    return begun._replace(
        choices=(
            *begun.choices,
            Choice("split", "Split", {name.value: name.value for name in stage.splits}, split.value),
            Choice("skill", "Skill", labels, skill),
            Choice("draw", "Draw", _draws(plan.draws), str(draw)),
            Choice("other", "Beside", _others(labels, skill), other),
        ),
        key=key(skill),
        label=labels[skill],
        other=key(other) if other else None,
        other_label=labels.get(other, ""),
        items=items,
        types=items,
        alone=split in PRIVATE_SPLITS,
        planned=len(plan.item_ids),
    )


def _items(run: TrainingRun, split: Split, plan: "SplitRollouts") -> "pa.Table":
    import pyarrow as pa
    import pyarrow.compute as pc

    from skillopt_airflow.store.data.items import load_ref_table

    table = load_ref_table(run.store, run.keys.items(split), ["id", "fingerprint", "task_types"])
    limit = run.config.evaluation.limit(split)
    table = table if limit is None else table.slice(0, limit)
    if len(plan.item_ids) == len(table):
        return table
    return table.filter(pc.is_in(table["id"], value_set=pa.array(plan.item_ids, pa.string())))


def of_skill(benchmark: str, asked: RolloutQuery) -> Subject:
    """Return a skill's rollouts on a split that the address asks for, whatever runs have stored them.

    Raises:
        DataError: the skill has none, or none for the target or under the harness that is named.
        SkillOptError: they cannot be read.
    """
    from skillopt_airflow.store.tables.rollout_browser import RolloutBrowser
    from skillopt_airflow.store.tables.rollout_table import RolloutPartitions

    config = benchmark_config(benchmark)
    store, prefix = buckets.open_bucket(config.storage, config.storage.bucket), config.storage.prefix
    browser, partitions = RolloutBrowser(store, prefix), RolloutPartitions(store, prefix)
    there = partitions.of_skill(benchmark, asked.skill[:DIGITS], asked.target)
    one = _closest(there, asked, config.model.harness)
    variants = browser.variants(one)
    if not variants:
        raise DataError(f"the rollouts of skill {asked.skill!r} were removed just now")
    variant = variants[min(asked.variant, len(variants) - 1)]
    published = published_skills(buckets.KeptConnections(), config.storage, benchmark, one.target).list_versions()
    names = _names(published, [*partitions.skills_beside(one), one.skill])
    other = asked.other[:DIGITS]
    other = other if other in names and other != one.skill else ""
    other_key, notes = _like(browser.variants(one._replace(skill=other)), variant) if other else (None, ())
    return Subject(
        title=f"{names[one.skill]} on the {one.split} split, {one.target}, {one.harness}",
        benchmark=benchmark,
        store=store,
        prefix=prefix,
        rules=config.evaluation,
        choices=(
            *_choices([found for found in there if found.target == one.target], one),
            Choice("variant", "Settings", _variants(variants), str(variants.index(variant))),
            _beside(names, one.skill, other),
        ),
        key=variant.key,
        label=names[one.skill],
        other=other_key,
        other_label=names.get(other, ""),
        types=_types(store, prefix, variant),
        notes=notes,
    )


def _closest(there: "Sequence[Partition]", asked: RolloutQuery, usual: str) -> "Partition":
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


def _names(versions: Iterable[str], skills: Iterable[str]) -> dict[str, str]:
    """Return what people call skills by the beginnings of their hashes: the version, where one is published.

    The newest version comes first, what is not published last.
    """
    published = {version.partition("-")[2]: version for version in versions}
    ordered = sorted(skills, key=lambda skill: published.get(skill, ""), reverse=True)
    return {skill: published.get(skill, f"skill {skill}") for skill in ordered}


def _choices(there: "Sequence[Partition]", partition: "Partition") -> tuple[Choice, ...]:
    """Return what says which partition is meant, with what there is of the skill and the target."""
    own = [one for one in there if one.harness == partition.harness]
    draws = sorted({one.draw for one in own if one.split == partition.split})
    return (
        Choice("target", "", {partition.target: partition.target}, partition.target),
        Choice("skill", "", {partition.skill: partition.skill}, partition.skill),
        Choice("harness", "Harness", {one.harness: one.harness for one in there}, partition.harness),
        Choice("split", "Split", {one.split.value: one.split.value for one in own}, partition.split.value),
        Choice("draw", "Draw", _draws(draws), str(partition.draw)),
    )


def _draws(draws: Iterable[int]) -> dict[str, str]:
    return {str(number): f"draw {number + 1}" for number in draws}


def _beside(names: Mapping[str, str], skill: str, other: str) -> Choice:
    """Return the choice of another skill: of the first of them, and of the one that the address names."""
    most = dict(list(names.items())[:MAX_SKILLS])
    label = "Beside" if len(most) == len(names) else f"Beside ({len(most):,} of {len(names):,} skills)"
    return Choice("other", label, _others(most | ({other: names[other]} if other else {}), skill), other)


def _others(labels: Mapping[str, str], skill: str) -> dict[str, str]:
    return {"": "no other skill"} | {name: label for name, label in labels.items() if name != skill}


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
    from skillopt_airflow.store.data.items import load_ref_table
    from skillopt_airflow.store.keys import RunKeys

    key = RunKeys(prefix, variant.key.benchmark, variant.run).items(variant.key.split)
    try:
        return load_ref_table(store, key, ["id", "task_types"])
    except ObjectMissing:
        return None
