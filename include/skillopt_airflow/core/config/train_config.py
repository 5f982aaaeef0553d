"""The configuration of a training; its groups in *_groups.py have all knobs and their defaults.

Layers, of which later ones win: the defaults of the groups (the paper's protocol), the deployment's defaults,
`benchmarks/<name>/benchmark.yaml`, the sample's settings.yaml if data.uri is the sample, and a run's overrides.
"""

from collections.abc import Mapping
from functools import reduce
from typing import Any, Self, get_args

from pydantic import ValidationError, model_validator
from pydantic.fields import FieldInfo

from skillopt_airflow.core.config.group import Group, explain, merge_layers
from skillopt_airflow.core.config.harnesses import HARNESSES
from skillopt_airflow.core.config.resource_groups import (
    BudgetGroup,
    DataGroup,
    ModelGroup,
    SandboxGroup,
    SearchGroup,
    StorageGroup,
)
from skillopt_airflow.core.config.service_groups import AlertsGroup, PublishingGroup, RegateGroup, RetentionGroup
from skillopt_airflow.core.config.training_groups import EvaluationGroup, GradientGroup, OptimizerGroup, TrainGroup
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.values.types import JsonObject, Value


class StatedScores(Value):
    """A publication's mean scores of seed and trained skill on a test split; a report shows them with their source."""

    source: str
    """The publication, and the place in it."""
    target: str
    """The target model and its settings."""
    seed: float
    best: float


class Preset(Value):
    """A file in a benchmark's folder `presets`."""

    settings: JsonObject
    """Knobs by group, which take precedence over benchmark.yaml."""
    scores: StatedScores | None = None


class TrainConfig(Group):
    train: TrainGroup = TrainGroup()
    gradient: GradientGroup = GradientGroup()
    optimizer: OptimizerGroup = OptimizerGroup()
    evaluation: EvaluationGroup = EvaluationGroup()
    model: ModelGroup = ModelGroup()
    data: DataGroup = DataGroup()
    sandbox: SandboxGroup = SandboxGroup()
    storage: StorageGroup = StorageGroup()
    search: SearchGroup = SearchGroup()
    budget: BudgetGroup = BudgetGroup()
    publishing: PublishingGroup = PublishingGroup()
    regate: RegateGroup = RegateGroup()
    retention: RetentionGroup = RetentionGroup()
    alerts: AlertsGroup = AlertsGroup()
    task: JsonObject | None = None
    """The declared task, which tasks/task_group.py reads; None if the benchmark's adapter.py defines it."""

    @model_validator(mode="after")
    def _search_by_tools(self) -> Self:
        if self.search.conn_id is not None and not HARNESSES[self.model.harness].needs_tools:
            raise ValueError(
                f"search.conn_id = {self.search.conn_id}: searches require tools. Set model.harness to tools and "
                "model.max_turns to about 10, or remove search.conn_id"
            )
        return self

    @property
    def image(self) -> str:
        image = self.sandbox.image
        return self.sandbox.registered(HARNESSES[self.model.harness].image if image is None else image)

    @classmethod
    def from_layers(cls, *layers: Mapping[str, Any]) -> "TrainConfig":
        """Merge nested layers, of which later ones win; raise ConfigError, which names the path of each invalid key."""
        try:
            return cls.model_validate(merge_layers(layers, cls.model_fields))
        except ValidationError as error:
            raise ConfigError(explain(error, fields_by_path())) from None


def nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    """Turn `{"optimizer.learning_rate": 2}` into `{"optimizer": {"learning_rate": 2}}`."""
    layers = (reduce(lambda inner, key: {key: inner}, reversed(path.split(".")), value) for path, value in flat.items())
    return merge_layers(layers, TrainConfig.model_fields)


def without(overrides: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return flat or nested overrides without a knob."""
    group, _, knob = path.partition(".")
    kept = {key: value for key, value in overrides.items() if key != path}
    if isinstance(kept.get(group), Mapping):
        kept[group] = {key: value for key, value in kept[group].items() if key != knob}
    return kept


def fields_by_path() -> dict[str, FieldInfo]:
    """Return all knobs by dotted path, in the order of the groups."""
    paths: dict[str, FieldInfo] = {}
    for group, field in TrainConfig.model_fields.items():
        for group_type in get_args(field.annotation) or (field.annotation,):
            if isinstance(group_type, type) and issubclass(group_type, Group):
                paths |= {f"{group}.{key}": knob for key, knob in group_type.model_fields.items()}
    return paths


def changed_paths(config: TrainConfig, other: TrainConfig) -> list[str]:
    one, two = values_by_path(config), values_by_path(other)
    return [path for path in one | two if one.get(path) != two.get(path)]


def values_by_path(config: TrainConfig) -> dict[str, Any]:
    """Return the JSON values of all knobs by path, and of the keys of `task` that are set."""
    dumped = config.model_dump(mode="json")
    return {f"{group}.{key}": value for group, keys in dumped.items() for key, value in (keys or {}).items()}
