"""The base of all groups of the configuration, and the kinds of values that they share."""

import ast
import inspect
import re
from itertools import pairwise
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema

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
