"""Rendering a template over the columns of a record, with errors that name key, line and column.

Who triggers a run may write one, so nothing in it makes more of a record than the record has: no assignments, macros,
products or paddings, and few loops within each other.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from types import BuiltinMethodType, FunctionType
from typing import TYPE_CHECKING, Any, Literal

from skillopt_airflow.core.errors import ConfigError, DataError
from skillopt_airflow.core.values.types import JsonObject

if TYPE_CHECKING:
    from jinja2 import Environment, Template, nodes

WHOLE = "record"
"""The variable that holds the record itself, for columns whose names are no names of variables."""
MAX_CHARS = 4_000_000
"""Characters of a rendered text: about a million tokens."""
MAX_LOOPS = 3
"""Loops within each other."""
MAX_RANGE = 100
_PADDING_FILTERS = ("batch", "center", "format", "indent", "round", "slice", "wordwrap")
"""Filters whose results are as large as a number says."""
_METHODS = re.compile(
    "capitalize|casefold|count|endswith|r?find|get|r?index|is[a-z]+|items|keys|lower|[lr]?strip|r?partition|"
    "remove(pre|suf)fix|replace|r?split|splitlines|startswith|title|upper|values"
)
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
            ConfigError: it is no template, or uses a part of Jinja that is left out.
        """
        from jinja2 import TemplateSyntaxError, meta

        try:
            tree = self._environment.parse(self._source)
            _check(tree, MAX_LOOPS)
            self._environment.compile(tree)
            return frozenset(meta.find_undeclared_variables(tree))
        except TemplateSyntaxError as error:
            problem = f"{self._key}: line {error.lineno}: no Jinja template: {str(error.message).rstrip('.')}"
            raise ConfigError(f"{problem}. {self.hint}") from error
        except RecursionError:
            raise ConfigError(f"{self._key}: no Jinja template: it has too many brackets within each other") from None

    @property
    def hint(self) -> str:
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
            return _joined(self._template.generate({WHOLE: present} | present))
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


def _check(node: "nodes.Node", loops: int) -> None:
    """Refuse what is left out of Jinja below a node, and more loops within each other.

    Raises:
        TemplateSyntaxError: naming what it is.
    """
    from jinja2 import TemplateSyntaxError, nodes

    left_out = (nodes.Mul, nodes.Pow, nodes.Mod)
    statements = (nodes.Template, nodes.Output, nodes.For, nodes.If)
    for child in node.iter_child_nodes():
        is_loop = isinstance(child, nodes.For)
        if isinstance(child, left_out) or (isinstance(child, nodes.Stmt) and not isinstance(child, statements)):
            raise TemplateSyntaxError(f"a prompt cannot use {type(child).__name__}", child.lineno)
        if isinstance(child, nodes.For) and (not loops or child.recursive):
            raise TemplateSyntaxError(f"a prompt has at most {MAX_LOOPS} loops within each other", child.lineno)
        _check(child, loops - is_loop)


def _joined(parts: Iterator[str]) -> str:
    made, left = [], MAX_CHARS
    for part in parts:
        left -= len(part)
        if left < 0:
            raise ValueError(f"the text has more than {MAX_CHARS:,} characters")
        made.append(part)
    return "".join(made)


def _range(*bounds: int) -> range:
    found = range(*bounds)
    if len(found) > MAX_RANGE:
        raise ValueError(f"a range has at most {MAX_RANGE} numbers")
    return found


def _to_json(value: object, indent: Literal[0, 1, 2, 4, 8] | None = None) -> str:
    if indent not in (None, 0, 1, 2, 4, 8):
        raise ValueError("tojson: indent is 0, 1, 2, 4 or 8")
    return json.dumps(value, ensure_ascii=False, sort_keys=True, indent=indent, default=list)


def _environment() -> "Environment":
    """Return Jinja for prompts, where the field of an object comes before a method of that name."""
    from jinja2 import StrictUndefined
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class PromptEnvironment(ImmutableSandboxedEnvironment):
        def getattr(self, obj: Any, attribute: str) -> Any:
            if isinstance(obj, Mapping) and attribute in obj:
                return obj[attribute]
            return without_text(super().getattr(obj, attribute))

        def getitem(self, obj: Any, argument: Any) -> Any:
            return without_text(super().getitem(obj, argument))

    def without_text(found: Any) -> Any:
        if not isinstance(found, BuiltinMethodType | FunctionType):
            return found
        if not _METHODS.fullmatch(found.__name__):
            raise TypeError(f"a prompt cannot use the method {found.__name__}")
        return Method(found)

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
    environment.globals = {"range": _range}
    environment.filters = {name: one for name, one in environment.filters.items() if name not in _PADDING_FILTERS}
    environment.filters["tojson"] = _to_json
    return environment
