"""Reading a file of YAML that a person wrote."""

from pathlib import Path
from typing import Any

import yaml

from skillopt_airflow.core.errors import ConfigError


def read_yaml(path: Path) -> Any:
    """Return what the file holds.

    Raises:
        ConfigError: it cannot be read, or is no YAML.
    """
    try:
        return yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path}: it cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: not YAML: {error}") from error
