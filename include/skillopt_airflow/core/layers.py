"""Merging layers of a configuration, and saying which of its keys are wrong."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from pydantic import ValidationError

from skillopt_airflow.core.errors import ConfigError

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
