"""Reading a file of YAML that a person wrote."""

import re
from pathlib import Path
from typing import Any

import yaml
from yaml.composer import ComposerError

from skillopt_airflow.core.errors import ConfigError

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
