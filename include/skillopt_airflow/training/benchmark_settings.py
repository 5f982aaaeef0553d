"""The configuration that a benchmark's folder asks for, before a run overrides it, and the presets that it has."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config import Preset, StatedScores, TrainConfig, changed_paths, nest, values_by_path
from skillopt_airflow.core.declared_task import checked_prompt
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.layers import explain
from skillopt_airflow.core.task_group import read_config, task_of
from skillopt_airflow.core.types import JsonObject
from skillopt_airflow.training.deployment_file import check_defaults, defaults_place, deployment, read_yaml

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
