"""Rendering a template over the columns of a record, with errors that name key, line and column.

Anyone who can trigger a run can write a template, so it can't multiply a record's size: assignments, macros, products
and padding aren't available, and few loops can be nested.
"""

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache, cached_property, partial
from types import BuiltinMethodType, FunctionType
from typing import TYPE_CHECKING, Any, Literal

from skillopt_airflow.core.errors import ConfigError, DataError
from skillopt_airflow.core.values.types import JsonObject

if TYPE_CHECKING:
    from jinja2 import Environment, Template, nodes

WHOLE = "record"
"""The variable that holds the whole record, for columns whose names aren't valid variable names."""
MAX_CHARS = 4_000_000
"""Limit of a rendered prompt: about a million tokens."""
MAX_LOOPS = 3
"""Limit of nested loops."""
MAX_RANGE = 100
_PADDING_FILTERS = ("batch", "center", "format", "indent", "round", "slice", "wordwrap")
"""Filters whose arguments set the size of the result."""
_METHODS = re.compile(
    "capitalize|casefold|count|endswith|r?find|get|r?index|is[a-z]+|items|keys|lower|[lr]?strip|r?partition|"
    "remove(pre|suf)fix|replace|r?split|splitlines|startswith|title|upper|values"
)
_IN_BRACES = re.compile(r"\{[{%\s]*([^\W\d]\w*)[\s%}]*\}")
"""A name in any braces, as in Python's format strings and in mistyped Jinja."""


class Method(partial[Any]):
    """A method of a value, which can be called but not printed: its repr differs per process."""

    def __repr__(self) -> str:
        raise _no_field(self.func.__name__)


def _no_field(function: str) -> TypeError:
    return TypeError(f"{function} is a function, not a field of the value, and cannot be shown")


class PromptTemplate:
    """A user's Jinja template. Jinja is imported on use, because the sandbox image doesn't have it."""

    def __init__(self, key: str, source: str) -> None:
        self._key = key
        self._source = source

    @cached_property
    def columns(self) -> frozenset[str]:
        """The variables that the template reads; raises ConfigError if it isn't valid, or not available here."""
        from jinja2 import TemplateSyntaxError, meta

        try:
            tree = _environment().parse(self._source)
            _check(tree, MAX_LOOPS)
            _environment().compile(tree)
            return frozenset(meta.find_undeclared_variables(tree))
        except TemplateSyntaxError as error:
            problem = f"{self._key}: line {error.lineno}: not a Jinja template: {str(error.message).rstrip('.')}"
            raise ConfigError(f"{problem}. {self.hint}") from error
        except RecursionError:
            raise ConfigError(f"{self._key}: not a Jinja template: its brackets are nested too deeply") from None

    @property
    def hint(self) -> str:
        found = _IN_BRACES.search(self._source)
        name = found[1] if found else "question"
        return f'Write a column as {{{{ {name} }}}}, or as {{{{ record["Full name"] }}}} if its name has spaces'

    def render(self, record: JsonObject) -> str:
        """Return the prompt for a record; raise DataError if a column is missing, null, or has an unusable value."""
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
        # Raises an error that names the line if the source is invalid.
        _ = self.columns
        return _environment().from_string(self._source)


def _check(node: "nodes.Node", loops: int) -> None:
    """Raise TemplateSyntaxError if anything below a node isn't available here, or loops are nested too deeply."""
    from jinja2 import TemplateSyntaxError, nodes

    left_out = (nodes.Mul, nodes.Pow, nodes.Mod)
    statements = (nodes.Template, nodes.Output, nodes.For, nodes.If)
    for child in node.iter_child_nodes():
        is_loop = isinstance(child, nodes.For)
        if isinstance(child, left_out) or (isinstance(child, nodes.Stmt) and not isinstance(child, statements)):
            raise TemplateSyntaxError(f"a prompt cannot use {type(child).__name__}", child.lineno)
        if isinstance(child, nodes.For) and (not loops or child.recursive):
            raise TemplateSyntaxError(f"a prompt can nest at most {MAX_LOOPS} loops", child.lineno)
        _check(child, loops - is_loop)


def _joined(parts: Iterator[str]) -> str:
    rendered, free = [], MAX_CHARS
    for part in parts:
        free -= len(part)
        if free < 0:
            raise ValueError(f"the prompt has more than {MAX_CHARS:,} characters")
        rendered.append(part)
    return "".join(rendered)


def _range(*bounds: int) -> range:
    numbers = range(*bounds)
    if len(numbers) > MAX_RANGE:
        raise ValueError(f"a range can have at most {MAX_RANGE} numbers")
    return numbers


def _to_json(value: object, indent: Literal[0, 1, 2, 4, 8] | None = None) -> str:
    if indent not in (None, 0, 1, 2, 4, 8):
        raise ValueError(f"tojson: indent = {indent}: expected 0, 1, 2, 4 or 8")
    return json.dumps(value, ensure_ascii=False, sort_keys=True, indent=indent, default=list)


@cache
def _environment() -> "Environment":
    """Return a Jinja environment in which an object's field takes precedence over a method of that name."""
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
        # Their repr holds a memory address, which differs per process.
        if isinstance(value, Iterator):
            raise TypeError(f"a {type(value).__name__} cannot be shown: add | list or | join(', ')")
        # Undefined values and methods are callable, too, and raise their own errors.
        if callable(value) and not isinstance(value, StrictUndefined | Method):
            raise _no_field(getattr(value, "__name__", type(value).__name__))
        return value

    # A model reads the prompt as plain text, where an escaped < would be wrong.
    environment = PromptEnvironment(undefined=StrictUndefined, autoescape=False, finalize=finalize)
    environment.globals = {"range": _range}
    environment.filters = {name: one for name, one in environment.filters.items() if name not in _PADDING_FILTERS}
    environment.filters["tojson"] = _to_json
    return environment
