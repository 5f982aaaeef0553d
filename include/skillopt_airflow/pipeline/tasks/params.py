"""The form of a run in the Airflow UI, built from the configuration, and its values as overrides."""

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowFailException

from skillopt_airflow.core.config.group import Group
from skillopt_airflow.core.config.resource_groups import StorageGroup
from skillopt_airflow.core.config.train_config import TrainConfig, nest, values_by_path
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.tasks.task_group import read_config
from skillopt_airflow.training.prepare.benchmark_settings import check_allowed

FORM = (
    "train.init_skill",
    "train.num_epochs",
    "train.batch_size",
    "optimizer.learning_rate",
    "evaluation.gate_policy",
    "model.target",
    "model.optimizer",
    "model.harness",
    "model.max_turns",
    "data.uri",
    "data.split_mode",
    "budget.max_usd",
    "publishing.approval",
)
"""Knobs in the form; `overrides` takes any other."""

FIXED_IN_GRAPH = (
    "regate.schedule",
    "regate.timezone",
    "retention.trajectory_days",
    "regate.train_on_decline",
    "publishing.approval_hours",
    "publishing.approvers",
    "alerts.conn_id",
    "model.batch",
    "sandbox.engine",
    "sandbox.max_containers",
    "sandbox.pool",
    "sandbox.queue",
    "sandbox.test_timeout",
    "sandbox.timeout",
)
"""Knobs that runs can't change, because Airflow reads them when a DAG is parsed."""

CHOICES: Mapping[str, Sequence[Any]] = {"boolean": (True, False), "null": (None,)}
"""Values of a type in a field with other choices."""


def form(config: TrainConfig, presets: Sequence[str] = (), paths: Sequence[str] = FORM) -> dict[str, Param]:
    """Return the fields of the form, by dotted path, with the benchmark's values as defaults."""
    fields: dict[str, Param] = {}
    if presets:
        fields["preset"] = Param(
            None,
            type=["string", "null"],
            enum=[None, *presets],
            title="preset",
            section="preset",
            description="Named set of settings. Changed fields below override it.",
        )
    values = values_by_path(config)
    for path in paths:
        group, key = path.split(".")
        knobs: Group = getattr(config, group)
        schema = _properties(type(knobs))[key]
        fields[path] = Param(values[path], title=path, section=group, **_field_schema(schema))
    fields["overrides"] = Param(
        {},
        type=["object", "null"],
        title="overrides",
        section="more",
        description='Any other knob by its path, such as {"train.seed": 7}. Overrides the fields above.',
    )
    return fields


@cache
def _properties(group: type[Group]) -> Mapping[str, Any]:
    properties: Mapping[str, Any] = group.model_json_schema()["properties"]
    return properties


def run_config(config: TrainConfig, params: Mapping[str, Any], *layers: JsonObject) -> TrainConfig:
    """Return a run's configuration from layers such as a preset, the form's fields, and its `overrides`.

    A field with the benchmark's value counts as unchanged. Raises ConfigError.
    """
    overrides = params.get("overrides")
    if overrides is None:
        overrides = {}
    if not isinstance(overrides, Mapping):
        raise ConfigError(f'overrides: expected keys and values such as {{"train.seed": 7}}, got {overrides!r}')
    own = values_by_path(config)
    fields = {path: value for path, value in params.items() if path in own and value != own[path]}
    asked = read_config(config.model_dump(), *layers, nest(fields), nest(overrides))
    epochs, room = asked.train.num_epochs, config.train.num_epochs
    if epochs > room:
        raise ConfigError(
            f"train.num_epochs = {epochs}: the graph has room for {room}. Raise train.num_epochs in the benchmark's "
            "benchmark.yaml, and start the run after Airflow has parsed it again"
        )
    check_fixed(asked, config)
    check_allowed(asked, config)
    return asked


def check_fixed(asked: TrainConfig, own: TrainConfig) -> None:
    """Raise ConfigError for a changed knob that Airflow reads when it parses the DAG."""
    values, fixed = values_by_path(asked), values_by_path(own)
    for path in FIXED_IN_GRAPH:
        if values[path] != fixed[path]:
            raise ConfigError(f"{path} is fixed when the DAG is parsed. Set it in the benchmark's benchmark.yaml")


def run_storage(config: TrainConfig, params: Mapping[str, Any]) -> StorageGroup:
    """Return the storage of a run with this form, even if the form is no longer valid.

    Raises ConfigError if the overrides name an invalid or forbidden storage.
    """
    overrides = params.get("overrides")
    asked = nest(overrides) if isinstance(overrides, Mapping) else {}
    stored = read_config(config.model_dump(), {"storage": asked.get("storage", {})})
    check_allowed(stored, config)
    return stored.storage


def check_graph(config: TrainConfig, own: TrainConfig) -> None:
    """Raise AirflowFailException if the graph changed with benchmark.yaml since the run began."""
    if config.model.batch != own.model.batch:
        raise graph_changed(f"model.batch = {json.dumps(config.model.batch)}", "this task")


def graph_changed(began: str, to_clear: str) -> AirflowFailException:
    """Return the error of a run that can't continue in the current graph; it `began` with a knob's former value."""
    return AirflowFailException(
        f"benchmark.yaml and the graph have changed since this run began with {began}. "
        f"Restore it and clear {to_clear}, or trigger a new run"
    )


def _field_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON schema for the form, with alternatives to null as a list of types."""
    kept = {
        key: value for key, value in schema.items() if key not in ("default", "title", "anyOf", "additionalProperties")
    }
    alternatives = schema.get("anyOf", ())
    for alternative in alternatives:
        kept |= {key: value for key, value in alternative.items() if key not in ("type", "const")}
    if alternatives:
        kept["type"] = [alternative["type"] for alternative in alternatives]
    if any("enum" in one or "const" in one for one in alternatives):
        kept["enum"] = [value for alternative in alternatives for value in _choices(alternative)]
    return kept


def _choices(schema: Mapping[str, Any]) -> Sequence[Any]:
    if "const" in schema:
        return [schema["const"]]
    choices: Sequence[Any] = schema.get("enum", CHOICES.get(schema["type"], ()))
    return choices
