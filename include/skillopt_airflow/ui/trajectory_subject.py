"""The subject of a page of trajectories: some rollouts of one skill, maybe beside another skill's on the same items."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from skillopt_airflow.core.training_groups import EvaluationGroup

if TYPE_CHECKING:
    import pyarrow as pa

    from skillopt_airflow.store.objects import ObjectStore
    from skillopt_airflow.store.rollout_table import RolloutKey


class Choice(NamedTuple):
    """A parameter that says which rollouts are meant, with the values that it may have."""

    parameter: str
    label: str
    options: Mapping[str, str]
    """What people read, by value."""
    chosen: str


class Subject(NamedTuple):
    """The subject of a page."""

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


def others(labels: Mapping[str, str], skill: str) -> dict[str, str]:
    """Return the options of a comparison with another skill."""
    return {"": "no other skill"} | {name: label for name, label in labels.items() if name != skill}
