"""The query of a rollout page: its URL parameters, and the rollouts and skills that they select."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, Self
from urllib.parse import urlencode

from fastapi import Query
from pydantic import BaseModel, ConfigDict, Field, model_validator

from skillopt_airflow.core.config.training_groups import EvaluationGroup
from skillopt_airflow.core.errors import DataError, ObjectMissing
from skillopt_airflow.core.values.types import Split, Status
from skillopt_airflow.store.keys import RunKeys
from skillopt_airflow.training.prepare.benchmark_settings import benchmark_config
from skillopt_airflow.training.run.connections import published_skills
from skillopt_airflow.training.run.run import PRIVATE_SPLITS, TrainingRun
from skillopt_airflow.training.run.run_record import RunRef
from skillopt_airflow.ui import access

if TYPE_CHECKING:
    import pyarrow as pa

    from skillopt_airflow.store.objects import ObjectStore
    from skillopt_airflow.store.tables.rollout_browser import Variant
    from skillopt_airflow.store.tables.rollout_table import Partition, RolloutKey
    from skillopt_airflow.training.report.reporting import PlannedStage, SplitRollouts

MAX_SKILLS = 300
"""Newest skills offered for a comparison; the URL can name any other."""
DIGITS = 12
"""Digits of a skill's hash in paths."""


class RolloutQuery(BaseModel):
    model_config = ConfigDict(frozen=True)

    moment: str = ""
    """A `Moment.name` of the run; empty for the newest with rollouts."""
    at: str = Field(default="", exclude=True)
    """Moment that the submitted form showed; empty without a form."""
    at_stage: str = Field(default="", exclude=True)
    """Stage that the submitted form showed."""
    stage: str = ""
    """Name of a plan of the moment."""
    cell: int = Field(default=0, ge=0)
    """Index of a cell of an evaluation."""
    target: str = ""
    harness: str = ""
    split: Literal[""] | Split = ""
    skill: str = ""
    """In a run, its key below the run's folder; elsewhere the first 12 digits of its SHA-256."""
    sample: int = Field(default=0, ge=0)
    variant: int = Field(default=0, ge=0)
    """Index of the settings that the skill ran with, most rollouts first."""
    other: str = ""
    """Skill to compare with; empty for none."""
    show: Literal["all", "success", "failure", "no_score", "won", "lost", "tied", "flipped"] = "all"
    status: Literal[""] | Status = ""
    task_type: str = ""
    text: str = ""
    within: Literal["names", "said"] = "names"
    """Search in item ids and errors, or in conversations."""
    sort: Literal["item_id", "score", "other", "difference", "status", "tokens", "seconds"] = "item_id"
    order: Literal["up", "down"] = "up"
    page: int = Field(default=1, ge=1)
    mark: str = Field(default="", pattern=r"^[0-9a-f]*$")
    """The item to show: the first digits of its fingerprint. Empty for the list."""
    place: int = Field(default=0, ge=0)
    """Position in the filtered list, from 1; selects the item if `mark` is empty."""

    @model_validator(mode="before")
    @classmethod
    def _drop_skills_of_another_stage(cls, query: dict[str, Any]) -> dict[str, Any]:
        """Drop the skills of a submitted form whose moment or stage was changed: they belong to the old one."""
        shown = (("at", "moment"), ("at_stage", "stage"))
        if all(query.get(of_form, "") in ("", query.get(chosen)) for of_form, chosen in shown):
            return query
        return {name: value for name, value in query.items() if name not in ("skill", "other")}

    @property
    def compares(self) -> bool:
        return self.show in ("won", "lost", "tied", "flipped") or self.sort in ("other", "difference")

    @property
    def filters(self) -> bool:
        return self.show != "all" or bool(self.status or self.task_type or self.text)

    def address(self, **changes: object) -> str:
        """Return the relative URL of the same page with other values."""
        return f"?{urlencode(self.changed(**changes).model_dump(mode='json', exclude_defaults=True))}"

    def changed(self, **changes: object) -> Self:
        return self.model_validate(self.model_dump() | changes)


RolloutParams = Annotated[RolloutQuery, Query()]


class Choice(NamedTuple):
    """A parameter with its valid values."""

    parameter: str
    label: str
    options: Mapping[str, str]
    """Labels by value."""
    chosen: str


class Subject(NamedTuple):
    """The selected rollouts of a skill, and maybe of another skill on the same items."""

    title: str
    benchmark: str
    store: "ObjectStore"
    prefix: str
    rules: EvaluationGroup
    """Define which score counts."""
    choices: tuple[Choice, ...]
    key: "RolloutKey | None" = None
    """None without rollouts."""
    label: str = ""
    """Label of the skill."""
    other: "RolloutKey | None" = None
    other_label: str = ""
    run: str = ""
    """The run whose failures count; empty for any run."""
    alone: bool = False
    """Ignore the rollouts of other runs."""
    items: "pa.Table | None" = None
    """The items to show, with their types; None for every item."""
    types: "pa.Table | None" = None
    """Stored types by item."""
    planned: int | None = None
    """Number of planned items, if known."""
    rival: str = ""
    """Value of `other` that shows the two skills compared by a gate side by side."""
    notes: tuple[str, ...] = ()


def of_run(ref: RunRef, query: RolloutQuery) -> Subject:
    """Select the rollouts of one stage and skill of a run. Raises ObjectMissing if it has stored nothing yet."""
    from skillopt_airflow.training.champion.publication import as_published
    from skillopt_airflow.training.report import reporting

    run = TrainingRun(ref, access.CachedConnections())
    moments = reporting.reached_moments(run)
    stage = reporting.find_stage(run, moments, query.moment, query.stage)
    if stage.splits and stage.name.startswith(reporting.PUBLICATION):
        run = as_published(run, stage.name.removeprefix(reporting.PUBLICATION))
    labels = {moment.name: reporting.label_of(moment) for moment in moments}
    subject = Subject(
        title=labels[stage.moment.name],
        benchmark=ref.benchmark,
        store=run.store,
        prefix=ref.storage.prefix,
        rules=run.config.evaluation,
        choices=(Choice("moment", "Moment", labels, stage.moment.name),),
        run=ref.run,
    )
    if not stage.name:
        return subject
    model = run.config.model
    suffix = f" for {model.target}" if run.for_another_model else ""
    suffix = f" under {model.target}, {model.harness}" if stage.name == "score" else suffix
    subject = subject._replace(
        title=f"{subject.title}, {stage.names[stage.name]}{suffix}",
        choices=(*subject.choices, Choice("stage", "Stage", stage.names, stage.name)),
    )
    if not stage.splits:
        return subject
    rival = reporting.rival_before(run, stage.moment) if stage.name == "evaluate" else ""
    return _with_skills(run, subject, stage, query)._replace(rival=rival or "")


def _with_skills(run: TrainingRun, subject: Subject, stage: "PlannedStage", query: RolloutQuery) -> Subject:
    """Add the split, the skill, and the skill to compare with."""
    from skillopt_airflow.training.report.reporting import skills_of

    split = next((one for one in stage.splits if one == query.split), next(iter(stage.splits)))
    plan = stage.splits[split]
    labels = dict(skills_of(run, stage.moment, stage.name, plan.skills))
    skill = query.skill if query.skill in labels else plan.skills[0]
    other = query.other if query.other in labels and query.other != skill else ""
    sample = query.sample if query.sample in plan.samples else plan.samples[0]
    # An item's page shows no list.
    items = None if query.mark else _items(run, split, plan)

    def key(name: str) -> "RolloutKey":
        return run.rollout_key(split, run.document(f"{run.keys.folder}{name}"), sample)

    return subject._replace(
        choices=(
            *subject.choices,
            Choice("split", "Split", {name.value: name.value for name in stage.splits}, split.value),
            Choice("skill", "Skill", labels, skill),
            Choice("sample", "Sample", _samples(plan.samples), str(sample)),
            Choice("other", "Compare with", _others(labels, skill), other),
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

    from skillopt_airflow.store.data.item_tables import load_ref_table

    table = load_ref_table(run.store, run.keys.items(split), ["id", "fingerprint", "task_types"])
    return table.filter(pc.is_in(table["id"], value_set=pa.array(plan.item_ids, pa.string())))


def of_skill(benchmark: str, query: RolloutQuery) -> Subject:
    """Select a skill's rollouts on a split, from all runs. Raises DataError if none has the target and harness."""
    from skillopt_airflow.store.tables.rollout_browser import RolloutBrowser
    from skillopt_airflow.store.tables.rollout_table import RolloutPartitions

    config = benchmark_config(benchmark)
    store, prefix = access.open_bucket(config.storage, config.storage.bucket), config.storage.prefix
    browser, partitions = RolloutBrowser(store, prefix), RolloutPartitions(store, prefix)
    available = partitions.of_skill(benchmark, query.skill[:DIGITS], query.target)
    one = _closest(available, query, config.model.harness)
    variants = browser.variants(one)
    if not variants:
        raise DataError(f"the rollouts of skill {query.skill!r} have just been deleted")
    variant = variants[min(query.variant, len(variants) - 1)]
    published = published_skills(access.CachedConnections(), config.storage, benchmark, one.target).list_versions()
    names = _names(published, [*partitions.comparable_skills(one), one.skill])
    other = query.other[:DIGITS]
    other = other if other in names and other != one.skill else ""
    other_key, notes = _like(browser.variants(one._replace(skill=other)), variant) if other else (None, ())
    return Subject(
        title=f"{names[one.skill]} on the {one.split} split, {one.target}, {one.harness}",
        benchmark=benchmark,
        store=store,
        prefix=prefix,
        rules=config.evaluation,
        choices=(
            *_choices([each for each in available if each.target == one.target], one),
            Choice("variant", "Settings", _variants(variants), str(variants.index(variant))),
            _other_choice(names, one.skill, other),
        ),
        key=variant.key,
        label=names[one.skill],
        other=other_key,
        other_label=names.get(other, ""),
        types=_types(store, prefix, variant),
        notes=notes,
    )


def _closest(partitions: "Sequence[Partition]", query: RolloutQuery, usual: str) -> "Partition":
    """Return the partition that matches the query best, preferring the usual harness; raise like `of_skill`."""
    named = {name: value for name, value in (("target", query.target), ("harness", query.harness)) if value}
    own = [one for one in partitions if all(getattr(one, name) == value for name, value in named.items())]
    if not own:
        under = "".join(f", {name} {value!r}" for name, value in named.items())
        raise DataError(
            f"there are no rollouts of skill {query.skill!r}{under}. They may be deleted (retention.trajectory_days)"
        )
    return max(own, key=lambda one: (one.split == query.split, one.sample == query.sample, one.harness == usual))


def _names(versions: Iterable[str], skills: Iterable[str]) -> dict[str, str]:
    """Return the labels of skills by hash prefix, newest version first and unpublished skills last."""
    published = {version.partition("-")[2]: version for version in versions}
    ordered = sorted(skills, key=lambda skill: published.get(skill, ""), reverse=True)
    return {skill: published.get(skill, f"skill {skill}") for skill in ordered}


def _choices(partitions: "Sequence[Partition]", partition: "Partition") -> tuple[Choice, ...]:
    own = [one for one in partitions if one.harness == partition.harness]
    samples = sorted({one.sample for one in own if one.split == partition.split})
    return (
        Choice("target", "", {partition.target: partition.target}, partition.target),
        Choice("skill", "", {partition.skill: partition.skill}, partition.skill),
        Choice("harness", "Harness", {one.harness: one.harness for one in partitions}, partition.harness),
        Choice("split", "Split", {one.split.value: one.split.value for one in own}, partition.split.value),
        Choice("sample", "Sample", _samples(samples), str(partition.sample)),
    )


def _samples(samples: Iterable[int]) -> dict[str, str]:
    return {str(number): f"sample {number + 1}" for number in samples}


def _other_choice(names: Mapping[str, str], skill: str, other: str) -> Choice:
    most = dict(list(names.items())[:MAX_SKILLS])
    label = "Compare with" if len(most) == len(names) else f"Compare with ({len(most):,} of {len(names):,} skills)"
    return Choice("other", label, _others(most | ({other: names[other]} if other else {}), skill), other)


def _others(labels: Mapping[str, str], skill: str) -> dict[str, str]:
    return {"": "no other skill"} | {name: label for name, label in labels.items() if name != skill}


def _variants(variants: "Sequence[Variant]") -> dict[str, str]:
    return {
        str(number): f"{one.rows:,} of {one.key.image[:40]}, settings {one.key.settings_sha256[:8]}"
        for number, one in enumerate(variants)
    }


def _like(variants: "Sequence[Variant]", variant: "Variant") -> "tuple[RolloutKey | None, tuple[str, ...]]":
    """Return another skill's rollouts with the same settings, else with other settings and a note.

    Return None if it has no rollouts of the sample.
    """
    for one in variants:
        if (one.key.settings_sha256, one.key.image) == (variant.key.settings_sha256, variant.key.image):
            return one.key, ()
    if not variants:
        return None, ("The other skill has no rollouts of this sample.",)
    return variants[0].key, ("The two skills ran with different settings or programs, which may explain differences.",)


def _types(store: "ObjectStore", prefix: str, variant: "Variant") -> "pa.Table | None":
    """Return the types of the items from a run that stored some of the rollouts."""
    from skillopt_airflow.store.data.item_tables import load_ref_table

    key = RunKeys(prefix, variant.key.benchmark, variant.run).items(variant.key.split)
    try:
        return load_ref_table(store, key, ["id", "task_types"])
    except ObjectMissing:
        return None
