"""The configuration that a benchmark's folder asks for, before a run overrides it."""

import yaml

from skillopt_airflow import benchmarks
from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.errors import ConfigError


def benchmark_config(benchmark: str) -> TrainConfig:
    """Return the configuration of a benchmark without a run's overrides.

    Raises:
        ConfigError: naming the file and the key.
    """
    path = benchmarks.folder(benchmark) / "benchmark.yaml"
    try:
        layer = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: it cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not YAML: {error}") from error
    try:
        config = TrainConfig.from_layers({} if layer is None else layer)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error
    if config.task is not None and path.with_name("adapter.py").is_file():
        raise ConfigError(f"{path}: the section task and adapter.py both define the benchmark; remove one of them")
    return config
