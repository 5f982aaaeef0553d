"""A benchmark's configuration without overrides: the administrator's file, the benchmark's folder, and its presets."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from yaml.composer import ComposerError

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config.deployment import (
    Allowed,
    Deployment,
    address_not_allowed,
    disallowed_knobs,
    images_not_allowed,
)
from skillopt_airflow.core.config.group import explain
from skillopt_airflow.core.config.train_config import (
    Preset,
    StatedScores,
    TrainConfig,
    changed_paths,
    nest,
    values_by_path,
)
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.values.types import JsonObject
from skillopt_airflow.tasks.declared_task import checked_prompt
from skillopt_airflow.tasks.task_group import read_config, task_of

PRESETS = "presets"
SAMPLE = "sample"
"""The value of data.uri that names the sample in a benchmark's folder."""
PRESET_KEYS = (*(f"scores.{name}" for name in StatedScores.model_fields), *Preset.model_fields)


def benchmark_config(benchmark: str, uri: str | None = None) -> TrainConfig:
    """Return a benchmark's configuration without a run's overrides.

    Args:
        uri: the run's data.uri; benchmark.yaml's if None. The sample's settings apply only to the sample.

    Raises:
        ConfigError: the message names the file and the key.
    """
    folder = benchmarks.folder(benchmark)
    config = _apply_layer(deployment().defaults, folder / "benchmark.yaml")
    of_sample = folder / SAMPLE / "settings.yaml"
    if (config.data.uri if uri is None else uri) == SAMPLE and of_sample.is_file():
        config = _apply_layer(config.model_dump(), of_sample)
    if config.task is not None and (folder / "adapter.py").is_file():
        path = folder / "benchmark.yaml"
        raise ConfigError(f"{path}: the section task and adapter.py both define the benchmark. Remove one of them")
    return config


def settings_at(benchmark: str, uri: str) -> JsonObject:
    """Return the knobs, by group, that a run's data.uri changes."""
    there = benchmark_config(benchmark, uri)
    values = values_by_path(there)
    return nest({path: values[path] for path in changed_paths(benchmark_config(benchmark), there)})


def _apply_layer(below: Mapping[str, Any], path: Path) -> TrainConfig:
    """Apply a file's layer to a configuration."""
    layer = read_yaml(path)
    try:
        config = read_config(below, {} if layer is None else layer)
        if config.task is not None:
            checked_prompt(task_of(config.task))
    except ConfigError as error:
        check_defaults()
        raise ConfigError(f"{path}: {error}") from error
    return config


def place_of(benchmark: str, path: str) -> str:
    """Return the file that sets a knob."""
    file, (group, key) = benchmarks.folder(benchmark) / "benchmark.yaml", path.split(".")
    return str(file) if key in (read_yaml(file) or {}).get(group, {}) else defaults_place()


def other_connection(benchmark: str, config: TrainConfig) -> dict[str, str]:
    """Return the override that gives another run the same target connection; empty if it's the benchmark's."""
    conn_id = config.model.target_conn_id
    return {} if conn_id == benchmark_config(benchmark).model.target_conn_id else {"model.target_conn_id": conn_id}


def preset_names(benchmark: str) -> list[str]:
    return sorted(path.stem for path in (benchmarks.folder(benchmark) / PRESETS).glob("*.yaml"))


def preset_of(benchmark: str, name: str) -> Preset:
    if name not in (names := preset_names(benchmark)):
        has = f"it has {', '.join(names)}" if names else "it has none"
        raise ConfigError(f"preset {name}: {benchmark} has no such preset; {has}")
    path = benchmarks.folder(benchmark) / PRESETS / f"{name}.yaml"
    try:
        return Preset.model_validate(read_yaml(path))
    except ValidationError as error:
        raise ConfigError(f"{path}: {explain(error, PRESET_KEYS)}") from error


MERGED = "tag:yaml.org,2002:merge"
"""The tag of a key that merges another mapping; it may occur repeatedly."""


class _UniqueKeys(yaml.SafeLoader):
    """Refuses duplicate keys; YAML's own loader silently keeps the last one."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        seen = set[tuple[str, str]]()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == MERGED:
                continue
            if (key.tag, key.value) in seen:
                raise ComposerError(None, None, f"the key {key.value} occurs twice", key.start_mark)
            seen.add((key.tag, key.value))
        return node


def read_yaml(path: Path) -> Any:
    """Return the file's content; raise ConfigError if it can't be read, isn't YAML, or has a duplicate key."""
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeys)  # noqa: S506 - a kind of SafeLoader
    except OSError as error:
        raise ConfigError(f"{path}: it cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not YAML: {error}{_hint(error)}") from error


def _hint(error: Exception) -> str:
    """Return a hint about a template without quotation marks, whose braces YAML reads as its own."""
    marks = (getattr(error, name, None) for name in ("context_mark", "problem_mark"))
    lines = [line for mark in marks if mark for line in mark.buffer.splitlines()[max(0, mark.line - 1) : mark.line + 1]]
    if not re.search(r"\{[{%]", re.sub(r"'[^']*'|\"[^\"]*\"", "", "\n".join(lines))):
        return ""
    return '\nPut quotation marks around a template, such as prompt: "{{ question }}", or write it below prompt: |'


VARIABLE = "SKILLOPT_DEPLOYMENT"
"""Environment variable: path of the administrator's file. Without it there are no defaults, and runs may name only
their benchmark's own values."""
KEYS = (*(f"allowed.{kind}" for kind in Allowed.model_fields), *Deployment.model_fields)


def deployment() -> Deployment:
    """Read the administrator's file; raise ConfigError, which names the key, if it is missing or invalid."""
    path = os.environ.get(VARIABLE, "")
    if not path:
        return Deployment()
    try:
        return Deployment.model_validate(read_yaml(Path(path)) or {})
    except ValidationError as error:
        raise ConfigError(f"{VARIABLE}: {path}: {explain(error, KEYS)}") from error


def check_defaults() -> None:
    """Raise ConfigError, with the file and the key, for defaults that are invalid for every benchmark."""
    try:
        read_config(deployment().defaults)
    except ConfigError as error:
        raise ConfigError(f"{defaults_place()}: {error}") from error


def defaults_place() -> str:
    """Return the location of the defaults for error messages."""
    return f"{VARIABLE}: {os.environ[VARIABLE]}: defaults"


def check_allowed(asked: TrainConfig, own: TrainConfig) -> None:
    """Raise ConfigError, a line per knob, if a run has values that only the administrator may allow and `own` lacks."""
    _raise_if_any(disallowed_knobs(asked, own, deployment().allowed))


def check_skills(skills: dict[str, str]) -> None:
    """Raise ConfigError, a line each, for s3:// URLs of skills (by knob) that the administrator hasn't allowed."""
    allowed = deployment().allowed
    _raise_if_any([line for path, skill in skills.items() for line in address_not_allowed(path, skill, allowed)])


def check_images(names: Sequence[str], registry: str) -> None:
    """Raise ConfigError, a line each, for images from registries that the administrator hasn't allowed."""
    _raise_if_any(images_not_allowed(names, registry, deployment().allowed))


def _raise_if_any(sentences: list[str]) -> None:
    if sentences:
        where = os.environ.get(VARIABLE, "") or f"the file that {VARIABLE} names"
        raise ConfigError("\n".join(f"{sentence} (in {where})" for sentence in sentences))
