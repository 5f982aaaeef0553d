"""The base of configuration groups, merging of layers, and messages about invalid keys."""

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
    """Return a check that a string matches a whole pattern; `how` is the error message."""

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
        """Add the docstring of each field as its description.

        pydantic's `use_attribute_docstrings` reads them in every process that imports the class, which takes longer
        than the rest of a DAG file. Only forms need them.
        """
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema)["properties"]
        for name, words in _texts_below(cls).items():
            properties[name].setdefault("description", words)
        return schema


def _texts_below(group: type[Group]) -> dict[str, str]:
    """Return the docstrings of a group's fields by field."""
    [definition] = ast.parse(inspect.getsource(group)).body
    texts = dict[str, str]()
    for field, text in pairwise(definition.body if isinstance(definition, ast.ClassDef) else ()):
        match field, text:
            case ast.AnnAssign(target=ast.Name(id=name)), ast.Expr(value=ast.Constant(value=str(words))):
                texts[name] = inspect.cleandoc(words)
    return texts


OPTIONAL = frozenset({"task"})
"""Groups that can be missing, and are None then."""
NAMES_OF_RULES = ("from", "by")
"""Keys that select a rule, which has its own other keys."""


def merge_layers(layers: Iterable[Mapping[str, Any]], groups: Collection[str]) -> dict[str, Any]:
    """Merge layers of knobs by group, of which later ones win; raise ConfigError if one isn't a mapping.

    Mappings inside knobs are only merged for groups in OPTIONAL; in others they are one value, like a price list.
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
    """Return the path of each invalid key with the reason or the allowed keys; `paths` has all knobs."""
    return "; ".join(_explain(line, paths) for line in error.errors())


def _merged(before: Any, value: Any) -> Any:
    """Merge a later layer's value into an earlier one; a different rule, such as another `by`, replaces it."""
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
