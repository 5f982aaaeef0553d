"""The configuration before a run overrides it: the administrator's file, a benchmark's folder, and its presets."""

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
    """Return the configuration of a benchmark without a run's overrides.

    Args:
        uri: where a run's data is; as in benchmark.yaml when None. The sample's settings apply to the sample only.

    Raises:
        ConfigError: naming the file and the key.
    """
    folder = benchmarks.folder(benchmark)
    config = _over(deployment().defaults, folder / "benchmark.yaml")
    of_sample = folder / SAMPLE / "settings.yaml"
    if (config.data.uri if uri is None else uri) == SAMPLE and of_sample.is_file():
        config = _over(config.model_dump(), of_sample)
    if config.task is not None and (folder / "adapter.py").is_file():
        path = folder / "benchmark.yaml"
        raise ConfigError(f"{path}: the section task and adapter.py both define the benchmark; remove one of them")
    return config


def settings_at(benchmark: str, uri: str) -> JsonObject:
    """Return the knobs, by group, that differ from the benchmark's own where a run's data is at `uri`.

    Raises:
        ConfigError: as `benchmark_config`.
    """
    there = benchmark_config(benchmark, uri)
    values = values_by_path(there)
    return nest({path: values[path] for path in changed_paths(benchmark_config(benchmark), there)})


def _over(below: Mapping[str, Any], path: Path) -> TrainConfig:
    """Return the configuration that a file makes of the layer below it."""
    layer = read_yaml(path)
    try:
        config = read_config(below, {} if layer is None else layer)
        if (task := task_of(config.task)) is not None:
            checked_prompt(task)
    except ConfigError as error:
        check_defaults()
        raise ConfigError(f"{path}: {error}") from error
    return config


def place_of(benchmark: str, path: str) -> str:
    """Return where a knob is set that has another value than the project's own.

    Raises:
        ConfigError: benchmark.yaml cannot be read.
    """
    file, (group, key) = benchmarks.folder(benchmark) / "benchmark.yaml", path.split(".")
    return str(file) if key in (read_yaml(file) or {}).get(group, {}) else defaults_place()


def other_connection(benchmark: str, config: TrainConfig) -> dict[str, str]:
    """Return the override by which another run has the target's connection of this one; empty if it is the usual."""
    conn_id = config.model.target_conn_id
    return {} if conn_id == benchmark_config(benchmark).model.target_conn_id else {"model.target_conn_id": conn_id}


def preset_names(benchmark: str) -> list[str]:
    return sorted(path.stem for path in (benchmarks.folder(benchmark) / PRESETS).glob("*.yaml"))


def preset_of(benchmark: str, name: str) -> Preset:
    """Return a preset of a benchmark.

    Raises:
        ConfigError: there is none of this name, or its file is none; the text names it.
    """
    if name not in (names := preset_names(benchmark)):
        has = f"it has {', '.join(names)}" if names else "it has none"
        raise ConfigError(f"preset {name}: {benchmark} has no preset of this name; {has}")
    path = benchmarks.folder(benchmark) / PRESETS / f"{name}.yaml"
    try:
        return Preset.model_validate(read_yaml(path))
    except ValidationError as error:
        raise ConfigError(f"{path}: {explain(error, PRESET_KEYS)}") from error


MERGED = "tag:yaml.org,2002:merge"
"""The tag of a key that merges another mapping into its own; all of several do."""


class _UniqueKeys(yaml.SafeLoader):
    """Refuses a key that occurs twice, of which YAML's own loader keeps the last one without a word."""

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
    """Return what the file holds.

    Raises:
        ConfigError: it cannot be read, is no YAML, or has a key twice.
    """
    try:
        return yaml.load(path.read_text(encoding="utf-8"), Loader=_UniqueKeys)  # noqa: S506 - a kind of SafeLoader
    except OSError as error:
        raise ConfigError(f"{path}: it cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not YAML: {error}{_hint(error)}") from error


def _hint(error: Exception) -> str:
    """Return what to do about a template without quotation marks, in which braces are YAML's own."""
    marks = (getattr(error, name, None) for name in ("context_mark", "problem_mark"))
    lines = [line for mark in marks if mark for line in mark.buffer.splitlines()[max(0, mark.line - 1) : mark.line + 1]]
    if not re.search(r"\{[{%]", re.sub(r"'[^']*'|\"[^\"]*\"", "", "\n".join(lines))):
        return ""
    return '\nPut quotation marks around a template, such as prompt: "{{ question }}", or write it below prompt: |'


VARIABLE = "SKILLOPT_DEPLOYMENT"
"""Environment variable: path of the file; without one there are no defaults, and runs name what their benchmark
does."""
KEYS = (*(f"allowed.{kind}" for kind in Allowed.model_fields), *Deployment.model_fields)


def deployment() -> Deployment:
    """Read the administrator's file.

    Raises:
        ConfigError: it is not there, or holds something else; the text names the key.
    """
    path = os.environ.get(VARIABLE, "")
    if not path:
        return Deployment()
    try:
        return Deployment.model_validate(read_yaml(Path(path)) or {})
    except ValidationError as error:
        raise ConfigError(f"{VARIABLE}: {path}: {explain(error, KEYS)}") from error


def check_defaults() -> None:
    """Refuse defaults that no benchmark could have.

    Raises:
        ConfigError: naming the administrator's file and the key.
    """
    try:
        read_config(deployment().defaults)
    except ConfigError as error:
        raise ConfigError(f"{defaults_place()}: {error}") from error


def defaults_place() -> str:
    """Return where the defaults stand, for an error about one of them."""
    return f"{VARIABLE}: {os.environ[VARIABLE]}: defaults"


def check_allowed(asked: TrainConfig, own: TrainConfig) -> None:
    """Refuse a run that names what whoever triggers it may not.

    Args:
        asked: the configuration of the run.
        own: that of the benchmark, or of the finished run that is asked again.

    Raises:
        ConfigError: a line for each such knob.
    """
    _refuse(disallowed_knobs(asked, own, deployment().allowed))


def check_skills(skills: dict[str, str]) -> None:
    """Refuse s3:// addresses of skills, by what asks for each, which whoever triggers a run may not name.

    Raises:
        ConfigError: a line for each of them.
    """
    allowed = deployment().allowed
    _refuse([line for path, skill in skills.items() for line in address_not_allowed(path, skill, allowed)])


def check_images(names: Sequence[str], registry: str) -> None:
    """Refuse images that records name from registries that nobody has allowed.

    Raises:
        ConfigError: a line for each of them.
    """
    _refuse(images_not_allowed(names, registry, deployment().allowed))


def _refuse(sentences: list[str]) -> None:
    if sentences:
        where = os.environ.get(VARIABLE, "") or f"the file that {VARIABLE} names"
        raise ConfigError("\n".join(f"{sentence} (in {where})" for sentence in sentences))
