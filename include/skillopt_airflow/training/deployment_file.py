"""Files of YAML that people write, such as the administrator's, which the environment of Airflow's processes names."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError
from yaml.composer import ComposerError

from skillopt_airflow.core.config import TrainConfig
from skillopt_airflow.core.deployment import Allowed, Deployment, address_not_allowed, images_not_allowed, not_allowed
from skillopt_airflow.core.errors import ConfigError
from skillopt_airflow.core.layers import explain
from skillopt_airflow.core.task_group import read_config

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
    _refuse(not_allowed(asked, own, deployment().allowed))


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
