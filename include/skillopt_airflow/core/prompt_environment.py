"""The part of Jinja that prompts have: the size of every result is known, and bounded, before it is made.

There are no statements but `for`, `if` and `set`, no functions but `range`, and the filters and methods below.
"""

import json
import re
from collections.abc import Callable, ItemsView, Iterable, Iterator, KeysView, Mapping, Sized, ValuesView
from functools import partial, wraps
from inspect import signature, unwrap
from types import BuiltinMethodType, FunctionType
from typing import Any

from jinja2 import StrictUndefined, TemplateSyntaxError, nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MOST_CHARS = 4_000_000
"""Characters of a rendered text, and of each value on the way to it: about a million tokens."""
MOST_WORK = 25 * MOST_CHARS
"""Characters that all operations of one rendering read and make."""
_FILTERS = re.compile(
    "abs|capitalize|count|d|default|dictsort|first|float|format|groupby|indent|int|items|join|last|length|list|lower|map|"
    "max|min|reject|rejectattr|replace|reverse|round|select|selectattr|sort|string|sum|title|tojson|trim|truncate|unique|"
    "upper|wordcount"
)
_METHODS = re.compile(
    "capitalize|casefold|count|endswith|r?find|get|r?index|is[a-z]+|items|keys|lower|[lr]?strip|r?partition|remove(pre|suf)fix|"
    "replace|r?split|splitlines|startswith|title|upper|values"
)
_STATEMENTS = (nodes.Output, nodes.For, nodes.If, nodes.Assign)
_COUNTED = "counted rounds"
"""The filter that loops go through; no template can write its name."""
_OF_A_ROUND = 500
_OF_A_VALUE = 10
"""Characters that a round of a loop, and each value in a list, count as, since they take time as well."""
_WIDE = re.compile(r"%(\([^)]*\))?[-+ #0-9.]*(\*|\d{4})")
"""A conversion of Python's `%` with a width or precision of four digits, or one from its arguments."""
_WIDEST = 2000
"""Characters that any other conversion adds to what it shows."""


class Work:
    """What is left of the work of one rendering; every operation is counted before it is carried out."""

    left = MOST_WORK

    def check(self, operation: str, *values: Any) -> None:
        """Count an operation on values.

        Raises:
            ValueError: its result, or all of the work, is too large.
        """
        sizes = [self._size(value) for value in values]
        made = sum(sizes)
        match operation, values:
            case "*", (int() as times, other) | (other, int() as times) if not isinstance(other, int | float):
                made = self._size(other) * abs(times)
            case "**", (int(), int() as power):
                made = sizes[0] * abs(power)
            case "round", (_, int() as digits, *_):
                made = 4 * abs(digits)
            case "%" | "format", (str() as text, *_):
                made += text.count("%") * (_WIDEST + sum(sizes[1:])) if not _WIDE.search(text) else MOST_CHARS
            case "replace", (text, old, _, *_):
                made += str(text).count(str(old)) * sizes[2]
            case "join", (Sized() as parts, separator, *_):
                made += len(parts) * self._size(separator)
            case "indent", (text, int() | str() as width, *_):
                made += (1 + str(text).count("\n")) * (abs(width) if isinstance(width, int) else len(width))
        self.take(made)

    def take(self, size: int) -> None:
        """Count the characters of a result, or of a part of one; raise as `check` does."""
        self.left -= size
        if size > MOST_CHARS or self.left < 0:
            raise ValueError(f"a text or list has more than {MOST_CHARS:,} characters, or takes too long. Shorten it")

    def collected(self, parts: Iterable[str]) -> str:
        """Return the parts as one text; raise as `check` does."""
        found, size = [], 0
        for part in parts:
            found.append(part)
            size += len(part)
            self.take(size if size > MOST_CHARS else len(part))
        return "".join(found)

    def counted(self, values: Iterable[Any]) -> Iterator[Any]:
        """Yield the values of a loop; raise as `check` does."""
        for value in values:
            self.take(_OF_A_ROUND)
            yield value

    def _size(self, value: Any) -> int:
        """Return about how many characters a value has as a text; a list in two others counts twice."""
        size, rest = 0, [value]
        while rest and size <= MOST_CHARS:
            one = rest.pop()
            size += _OF_A_VALUE
            if isinstance(one, str | bytes):
                size += len(one)
            elif isinstance(one, int):
                size += one.bit_length()
            elif isinstance(one, dict):
                rest += [*one, *one.values()]
            elif isinstance(one, list | tuple | KeysView | ValuesView | ItemsView):
                rest += one
        self.take(size)
        return size


class Method(partial[Any]):
    """A method of a value, which can be called and has no text: that would be another one in each process."""

    def __repr__(self) -> str:
        raise _no_field(self.func.__name__)


class PromptEnvironment(ImmutableSandboxedEnvironment):
    """Jinja for prompts, where the field of an object comes before a method of that name."""

    intercepted_binops = frozenset(("+", "*", "**", "%"))

    def __init__(self) -> None:
        # The prompt is text for a model, in which an escaped < would be wrong.
        super().__init__(undefined=StrictUndefined, autoescape=False, finalize=self._shown)
        self.work = Work()
        self.globals = {"range": self.globals["range"]}
        filters = self.filters | {"tojson": self._to_json}
        self.filters = {name: self._bounded(name, one) for name, one in filters.items() if _FILTERS.fullmatch(name)}
        self.filters[_COUNTED] = lambda values: self.work.counted(values)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Count the work of `+`, `*`, `**` or `%`, and return the result."""
        self.work.check(operator, left, right)
        return super().call_binop(context, operator, left, right)

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Call a method that prompts have, or `range`."""
        if not isinstance(__obj, Method):
            return super().call(__context, __obj, *args, **kwargs)
        name = __obj.func.__name__
        if not _METHODS.fullmatch(name):
            raise TypeError(f"prompts have no method {name}")
        given = _lists(args)
        __self.work.check(name, __obj.func.__self__, *given)  # type: ignore[attr-defined]
        return __obj(*given, **kwargs)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """Return a field before a method."""
        if isinstance(obj, Mapping) and attribute in obj:
            return obj[attribute]
        return _without_text(super().getattr(obj, attribute))

    def getitem(self, obj: Any, argument: Any) -> Any:
        """Return an item, or else a field or method."""
        return _without_text(super().getitem(obj, argument))

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for node in tree.find_all((nodes.Stmt, nodes.NSRef)):
            if not isinstance(node, _STATEMENTS) or getattr(node, "recursive", False):
                only = "prompts can use only for, if and set, without recursion or namespaces"
                raise TemplateSyntaxError(f"{type(node).__name__}: {only}", node.lineno)
        bounded: nodes.Template = _Bounded().visit(tree)
        bounded.set_environment(self)
        return bounded

    def _shown(self, value: object) -> object:
        # Their texts would hold an address in memory, another one in each process.
        if isinstance(value, Iterator):
            raise TypeError(f"a {type(value).__name__} cannot be shown: add | list or | join(', ')")
        # What is undefined can be called, too, and has an error of its own, as a method has.
        if callable(value) and not isinstance(value, StrictUndefined | Method):
            raise _no_field(getattr(value, "__name__", type(value).__name__))
        self.work.check("show", value)
        return value

    def _bounded(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a filter that counts its work; what Jinja passes to it on its own comes first."""
        # A filter that has a variant for coroutines gets a context which it does not name.
        first, named = (int(hasattr(one, "jinja_pass_arg")) for one in (function, unwrap(function)))
        parameters = signature(function)

        @wraps(function)
        def checked(*args: Any, **kwargs: Any) -> Any:
            bound = parameters.bind(*args[:named], *_lists(args[first:]), **kwargs)
            given = bound.args[named:]
            self.work.check(name, *given, *bound.kwargs.values())
            return function(*args[:first], *given, **bound.kwargs)

        return checked

    def _to_json(self, value: object, indent: int | None = None) -> str:
        # Jinja's own escapes for HTML.
        encoder = json.JSONEncoder(ensure_ascii=False, sort_keys=True, indent=indent, default=list)
        if indent is not None:
            self.work.take(500 * abs(indent))
        return self.work.collected(encoder.iterencode(value))


class _Bounded(NodeTransformer):
    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802
        node.iter = nodes.Filter(node.iter, _COUNTED, [], [], None, None, lineno=node.lineno)
        return self.generic_visit(node)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        parts = nodes.List(node.nodes, lineno=node.lineno)
        return self.generic_visit(nodes.Filter(parts, "join", [], [], None, None, lineno=node.lineno))


def _lists(values: Iterable[Any]) -> list[Any]:
    """Return the values with a list in place of each iterator, whose size is not known."""
    return [[*value] if isinstance(value, Iterator) else value for value in values]


def _without_text(found: Any) -> Any:
    return Method(found) if isinstance(found, BuiltinMethodType | FunctionType) else found


def _no_field(function: str) -> TypeError:
    return TypeError(f"{function} is a function, which cannot be shown, and no field of the value")
