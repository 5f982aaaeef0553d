"""The configuration of a training; its groups, core/*_group*.py, alone hold every knob and its default.

Layers, later ones win: the defaults of the groups (the paper's protocol), those of the deployment,
`benchmarks/<name>/benchmark.yaml`, the sample's settings.yaml while data.uri is the sample, a run's overrides.
"""

from collections.abc import Collection, Iterable, Mapping
from functools import reduce
from typing import Any, Self, get_args

from pydantic import ValidationError, model_validator
from pydantic.fields import FieldInfo

from skillopt_airflow.core.config_group import Group
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.harnesses import HARNESSES
from skillopt_airflow.core.resource_groups import (
    BudgetGroup,
    DataGroup,
    ModelGroup,
    SandboxGroup,
    SearchGroup,
    SessionGroup,
    StorageGroup,
)
from skillopt_airflow.core.service_groups import AlertsGroup, PublishingGroup, RegateGroup, RetentionGroup
from skillopt_airflow.core.task_group import RULE_KEYS, TaskGroup
from skillopt_airflow.core.training_groups import EvaluationGroup, GradientGroup, OptimizerGroup, TrainGroup
from skillopt_airflow.core.types import JsonObject, Value


class StatedScores(Value):
    """Scores on a test split that somebody else measured; a report shows them as theirs."""

    source: str
    """The publication, and where in it."""
    target: str
    """The target model, and how it was asked."""
    seed: float
    """Mean score of what the training began with."""
    best: float
    """Mean score of the trained skill."""


class Preset(Value):
    """A file of a benchmark's folder `presets`."""

    settings: JsonObject
    """Knobs by group, over those of benchmark.yaml."""
    scores: StatedScores | None = None


OPTIONAL = frozenset({"task"})
"""Groups that may be missing, and then are None."""
NAMES_OF_RULES = ("from", "by")
"""Keys that choose a rule, which decides on its other keys."""


def merge_layers(layers: Iterable[Mapping[str, Any]], groups: Collection[str]) -> dict[str, Any]:
    """Merge layers that hold knobs by group; later ones win.

    Knobs that hold keys and values are merged in OPTIONAL alone: elsewhere such a knob is one value, like a price list.

    Raises:
        ConfigError: a layer or group holds no keys and values.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        for group, value in _checked("configuration", layer).items():
            if group in OPTIONAL:
                merged[group] = None if value is None else _merged(merged.get(group), _checked(group, value))
            elif group in groups:
                merged.setdefault(group, {}).update(_checked(group, value))
            else:
                merged[group] = value
    return merged


def explain(error: ValidationError, paths: Collection[str]) -> str:
    """Name each offending key by its path, with the reason or the allowed keys; `paths` are those of all knobs."""
    return "; ".join(_explain(line, paths) for line in error.errors())


def _merged(before: Any, value: Any) -> Any:
    """Return what a later layer makes of a value; another rule, such as another `by`, leaves nothing of the former."""
    if not (isinstance(before, Mapping) and isinstance(value, Mapping)):
        return value
    if any(key in value and value[key] != before.get(key) for key in NAMES_OF_RULES):
        return value
    return {**before, **{key: _merged(before.get(key), inner) for key, inner in value.items()}}


def _checked(path: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ConfigError(f"{path}: expected keys and values, got {value!r}")
    return value


def _explain(line: Any, paths: Collection[str]) -> str:
    location = [str(part) for part in line["loc"]]
    path = ".".join(location) or "configuration"
    if line["type"] == "extra_forbidden":
        prefix = "".join(f"{group}." for group in location[:-1])
        below = [known.removeprefix(prefix) for known in paths if known.startswith(prefix)]
        allowed = dict.fromkeys(known.partition(".")[0] for known in below)
        return f"{path}: no such key" + (f"; allowed here: {', '.join(allowed)}" if allowed else "")
    if line["type"] == "missing":
        return f"{path}: this key is required"
    message = line["msg"].removeprefix("Value error, ")
    return f"{path} = {line['input']!r}: {message}" if len(location) > 1 else f"{path}: {message}"


class TrainConfig(Group):
    """The whole configuration of one run."""

    train: TrainGroup = TrainGroup()
    gradient: GradientGroup = GradientGroup()
    optimizer: OptimizerGroup = OptimizerGroup()
    evaluation: EvaluationGroup = EvaluationGroup()
    model: ModelGroup = ModelGroup()
    data: DataGroup = DataGroup()
    session: SessionGroup = SessionGroup()
    sandbox: SandboxGroup = SandboxGroup()
    storage: StorageGroup = StorageGroup()
    search: SearchGroup = SearchGroup()
    budget: BudgetGroup = BudgetGroup()
    publishing: PublishingGroup = PublishingGroup()
    regate: RegateGroup = RegateGroup()
    retention: RetentionGroup = RetentionGroup()
    alerts: AlertsGroup = AlertsGroup()
    task: TaskGroup | None = None
    """The task by its data alone; None where the benchmark's adapter.py defines it."""

    @model_validator(mode="after")
    def _search_by_tools(self) -> Self:
        if self.search.conn_id is not None and not HARNESSES[self.model.harness].needs_tools:
            raise ValueError(
                f"search.conn_id = {self.search.conn_id}: the target searches by tools; set model.harness to tools and "
                "model.max_turns to 10 or so, or leave search.conn_id out"
            )
        return self

    @property
    def image(self) -> str:
        image = self.sandbox.image
        return self.sandbox.registered(HARNESSES[self.model.harness].image if image is None else image)

    @classmethod
    def from_layers(cls, *layers: Mapping[str, Any]) -> "TrainConfig":
        """Merge nested layers, later ones win, and validate.

        Raises:
            ConfigError: naming each offending key with its path and what is allowed there.
        """
        try:
            return cls.model_validate(merge_layers(layers, cls.model_fields))
        except ValidationError as error:
            raise ConfigError(explain(error, [*fields_by_path(), *RULE_KEYS])) from None


def nest(overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Turn `{"optimizer.learning_rate": 2}` into `{"optimizer": {"learning_rate": 2}}`."""
    layers = (
        reduce(lambda inner, key: {key: inner}, reversed(path.split(".")), value) for path, value in overrides.items()
    )
    return merge_layers(layers, TrainConfig.model_fields)


def without(overrides: Mapping[str, Any], path: str) -> dict[str, Any]:
    """Return overrides, flat or nested, without a knob."""
    group, _, knob = path.partition(".")
    kept = {key: value for key, value in overrides.items() if key != path}
    if isinstance(kept.get(group), Mapping):
        kept[group] = {key: value for key, value in kept[group].items() if key != knob}
    return kept


def fields_by_path() -> dict[str, FieldInfo]:
    """Return every knob by its dotted path, in the order of the groups."""
    paths: dict[str, FieldInfo] = {}
    for group, field in TrainConfig.model_fields.items():
        for group_type in get_args(field.annotation) or (field.annotation,):
            if isinstance(group_type, type) and issubclass(group_type, Group):
                paths |= {f"{group}.{key}": knob for key, knob in group_type.model_fields.items()}
    return paths


def changed_paths(config: TrainConfig, other: TrainConfig) -> list[str]:
    one, two = values_by_path(config), values_by_path(other)
    return [path for path in one if one[path] != two[path]]


def values_by_path(config: TrainConfig) -> dict[str, Any]:
    """Return the knobs' values as JSON has them; those of a group that is None are None."""
    dumped = config.model_dump(mode="json")
    split = ((path, *path.split(".")) for path in fields_by_path())
    return {path: None if dumped[group] is None else dumped[group].get(key) for path, group, key in split}
