"""Rendering a template over the columns of a record, with errors that name key, line and column."""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from types import BuiltinMethodType, FunctionType
from typing import TYPE_CHECKING, Any

from skillopt_airflow.core.errors import ConfigError, DataError
from skillopt_airflow.core.types import JsonObject

if TYPE_CHECKING:
    from jinja2 import Environment, Template

WHOLE = "record"
"""The variable that holds the record itself, for columns whose names are no names of variables."""
_IN_BRACES = re.compile(r"\{[{%\s]*([^\W\d]\w*)[\s%}]*\}")
"""A name in braces of any kind, as Python's format and slips in Jinja have it."""


class Method(partial[Any]):
    """A method of a value, which can be called and has no text: that would be another one in each process."""

    def __repr__(self) -> str:
        raise _no_field(self.func.__name__)


def _no_field(function: str) -> TypeError:
    return TypeError(f"{function} is a function, which cannot be shown, and no field of the value")


class PromptTemplate:
    """A Jinja template of a user's; Jinja is imported at its use, because the sandbox image does without it."""

    def __init__(self, key: str, source: str) -> None:
        """Keep the source; `key` is where it stands."""
        self._key = key
        self._source = source

    @cached_property
    def columns(self) -> frozenset[str]:
        """The variables that the template reads.

        Raises:
            ConfigError: it is no template.
        """
        from jinja2 import TemplateSyntaxError, meta

        try:
            return frozenset(meta.find_undeclared_variables(self._environment.parse(self._source)))
        except TemplateSyntaxError as error:
            problem = f"{self._key}: line {error.lineno}: no Jinja template: {str(error.message).rstrip('.')}"
            raise ConfigError(f"{problem}. {self.hint}") from error

    @property
    def hint(self) -> str:
        """How to write a column, by the first name in braces."""
        found = _IN_BRACES.search(self._source)
        name = found[1] if found else "question"
        return f'Write a column as {{{{ {name} }}}}, or as {{{{ record["Full name"] }}}} where its name has spaces'

    def render(self, record: JsonObject) -> str:
        """Return the text for a record; a column that is null is missing.

        Raises:
            DataError: the record lacks a column, or has a value that the template cannot use.
        """
        from jinja2 import TemplateError, UndefinedError

        present = {column: value for column, value in record.items() if value is not None}
        try:
            return self._template.render({WHOLE: present} | present)
        except UndefinedError as error:
            columns = ", ".join(present)
            raise DataError(f"{self._key}: {error.message}; the columns of the record are: {columns}") from error
        except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError) as error:
            raise DataError(f"{self._key}: {type(error).__name__}: {error}") from error

    @cached_property
    def _template(self) -> "Template":
        # Tells what is wrong with the source.
        _ = self.columns
        return self._environment.from_string(self._source)

    @cached_property
    def _environment(self) -> "Environment":
        return _environment()


def _environment() -> "Environment":
    """Return Jinja for prompts, where the field of an object comes before a method of that name."""
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    def tojson(value: object, indent: int | None = None) -> str:
        # Jinja's own escapes for HTML.
        return json.dumps(value, ensure_ascii=False, sort_keys=True, indent=indent, default=list)

    class PromptEnvironment(ImmutableSandboxedEnvironment):
        def getattr(self, obj: Any, attribute: str) -> Any:
            if isinstance(obj, Mapping) and attribute in obj:
                return obj[attribute]
            return without_text(super().getattr(obj, attribute))

        def getitem(self, obj: Any, argument: Any) -> Any:
            return without_text(super().getitem(obj, argument))

    def without_text(found: Any) -> Any:
        return Method(found) if isinstance(found, BuiltinMethodType | FunctionType) else found

    def finalize(value: object) -> object:
        # Their texts would hold an address in memory, another one in each process.
        if isinstance(value, Iterator):
            raise TypeError(f"a {type(value).__name__} cannot be shown: add | list or | join(', ')")
        # What is undefined can be called, too, and has an error of its own, as a method has.
        if callable(value) and not isinstance(value, StrictUndefined | Method):
            raise _no_field(getattr(value, "__name__", type(value).__name__))
        return value

    # The prompt is text for a model, in which an escaped < would be wrong.
    environment = PromptEnvironment(undefined=StrictUndefined, autoescape=False, finalize=finalize)
    environment.filters["tojson"] = tojson
    return environment
