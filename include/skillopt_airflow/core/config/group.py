"""The base of all groups of the configuration, merging its layers, and saying which of its keys are wrong."""

import ast
import inspect
import re
from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler, ValidationError
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

from skillopt_airflow.core.errors import ConfigError

Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
ObjectName = Annotated[str, Field(min_length=1)]


def spelled(pattern: str, how: str) -> BeforeValidator:
    """Return the check of a text that has to match all of a pattern; the error says how to write it instead."""

    def check(value: Any) -> Any:
        if not isinstance(value, str) or not re.fullmatch(pattern, value):
            raise ValueError(how)
        return value

    return BeforeValidator(check)


class Group(BaseModel):
    """Base of the groups: frozen, closed to unknown keys, each field documented in place."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """Describe each field by the text below it.

        pydantic's `use_attribute_docstrings` looks for it in every process that imports the class, and takes longer
        there than the rest of a DAG file does; only forms need it.
        """
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema)["properties"]
        for name, words in _texts_below(cls).items():
            properties[name].setdefault("description", words)
        return schema


def _texts_below(group: type[Group]) -> dict[str, str]:
    """Return the texts that stand below the fields of a group, by field."""
    [definition] = ast.parse(inspect.getsource(group)).body
    texts = dict[str, str]()
    for field, text in pairwise(definition.body if isinstance(definition, ast.ClassDef) else ()):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                texts[name] = inspect.cleandoc(words)
    return texts


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
