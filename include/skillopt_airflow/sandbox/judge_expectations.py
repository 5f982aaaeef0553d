"""The program that has tests expect something else, in the judge's container, before any code of the tree runs.

It is a program of the standard library alone, copied there; order.json beside it names the files. It changes what the
functions of tests expect, each at one place, and prints their names as JSON. A right change fails such a test: where an
equation holds, none with another value does. A test that passes all the same depends on nothing that it expects.
"""

# The image's Python may be older than this project's.
from __future__ import annotations

import ast
import json
import random
import re
import sys
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

HERE = Path(__file__).parent
WORK = Path("/work")
EQUATIONS = ("assertEqual", "assertEquals")
RAISES = ("raises", "assertRaises", "assertRaisesRegex")
EXCEPTIONS = ("BlockingIOError", "ChildProcessError", "FloatingPointError", "UnicodeTranslateError")
"""What hardly any test expects."""

if TYPE_CHECKING:
    Function = ast.FunctionDef | ast.AsyncFunctionDef


class Edit(NamedTuple):
    """A text to put in the place of a part of the source, in bytes of UTF-8."""

    begin: int
    end: int
    text: str


class Source:
    """A module's source, whose places are told as Python's parser does."""

    def __init__(self, text: str) -> None:
        self.content = text.encode()
        self.lines = self.content.splitlines(keepends=True)
        self._begins = [0]
        for line in self.lines:
            self._begins.append(self._begins[-1] + len(line))

    def span(self, node: ast.expr) -> tuple[int, int]:
        """Return where an expression begins and ends."""
        end_line, end_column = node.end_lineno or node.lineno, node.end_col_offset or 0
        return self._begins[node.lineno - 1] + node.col_offset, self._begins[end_line - 1] + end_column

    def after(self, line: int) -> int:
        """Return where the line after this one begins; lines count from 1."""
        return self._begins[line]

    def edited(self, edits: Sequence[Edit]) -> str:
        """Return the source with all of the edits."""
        content = self.content
        for begin, end, text in sorted(edits, reverse=True):
            content = content[:begin] + text.encode() + content[end:]
        return content.decode()


def main() -> None:
    """Change the files, and print which functions were changed, and which were not."""
    # Of what stands in the files, which would be printed beside the names.
    warnings.simplefilter("ignore")
    order = json.loads((HERE / "order.json").read_text())
    chance = random.Random(order["altered"])  # noqa: S311
    told: dict[str, list[str]] = {"altered": [], "kept": []}
    for path in order["restored"]:
        file = WORK / path
        if path.endswith(".py") and file.is_file() and not file.is_symlink():
            text, functions = altered(file.read_bytes().decode(errors="surrogateescape"), chance)
            file.write_bytes(text.encode(errors="surrogateescape"))
            module = path[: -len(".py")].replace("/", ".")
            for name, changed in functions.items():
                told["altered" if changed else "kept"].append(f"{module}.{name}")
    sys.stdout.write(json.dumps(told))


def altered(text: str, chance: random.Random) -> tuple[str, dict[str, bool]]:
    """Return the source with other expectations, and whether each function of a test has one, by its name.

    A source that Python does not read stays as it is.
    """
    try:
        source = Source(text)
        found = [(name, _edit(one, source, chance)) for name, one in _functions(ast.parse(text).body)]
        changed = source.edited([edit for _, edit in found if edit is not None])
        ast.parse(changed)
    except (SyntaxError, ValueError, RecursionError):
        return text, {}
    told: dict[str, bool] = {}
    for name, edit in found:
        told[name] = told.get(name, True) and edit is not None
    return changed, told


def _functions(body: Sequence[ast.stmt], within: str = "") -> Iterator[tuple[str, Function]]:
    """Yield the functions of tests of a module and its classes, by their names with those of the classes."""
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield from _functions(statement.body, f"{within}{statement.name}.")
        elif isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef)) and statement.name.startswith("test"):
            yield within + statement.name, statement


def _edit(function: Function, source: Source, chance: random.Random) -> Edit | None:
    """Return what makes a test fail that passed; None for one that may end before it comes to that."""
    if _leaves_early(function.body):
        return None
    # What stands in a loop or a context may be passed by, and more so what stands in a branch.
    for statements in (function.body, [*_within(function.body)]):
        edits = [edit for statement in statements for edit in _expectations(statement, source, chance)]
        if edits:
            return chance.choice(edits)
    first, last = function.body[0], function.body[-1]
    indent = source.lines[first.lineno - 1][: first.col_offset]
    if indent.strip() or first.lineno == function.lineno:
        return None
    place, value = source.after(last.end_lineno or last.lineno), chance.randrange(1000)
    ended = "" if source.content[:place].endswith(b"\n") else "\n"
    return Edit(place, place, f"{ended}{indent.decode()}assert {value} == {value + chance.randrange(1, 1000)}\n")


def _leaves_early(body: Sequence[ast.stmt]) -> bool:
    """Return whether a function may end before its last line without failing, or yields."""
    pending: list[ast.AST] = [*body]
    while pending:
        node = pending.pop()
        if isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom)):
            return True
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)):
            pending += ast.iter_child_nodes(node)
    return False


def _within(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of loops over something and of contexts."""
    for statement in body:
        if isinstance(statement, (ast.For, ast.AsyncFor, ast.With, ast.AsyncWith)):
            yield from statement.body
            yield from _within(statement.body)


def _expectations(statement: ast.stmt, source: Source, chance: random.Random) -> Iterator[Edit]:
    """Yield the ways to have a statement that passed fail: another value, or another exception."""
    if isinstance(statement, ast.Assert) and isinstance(statement.test, ast.Compare):
        compared = statement.test
        if len(compared.ops) == 1 and isinstance(compared.ops[0], ast.Eq):
            yield _other_value(compared.left, compared.comparators[0], source, chance)
    elif isinstance(statement, ast.With):
        for item in statement.items:
            if called := _arguments(item.context_expr, RAISES):
                yield _other_exception(called[0], source, chance)
    elif isinstance(statement, ast.Expr):
        sides, called = _arguments(statement.value, EQUATIONS), _arguments(statement.value, RAISES)
        if len(sides) > 1:
            yield _other_value(sides[0], sides[1], source, chance)
        if len(called) > 1:
            yield _other_exception(called[0], source, chance)


def _arguments(call: ast.expr, names: Sequence[str]) -> Sequence[ast.expr]:
    """Return the arguments by their places of a call of one of these functions or methods; none of another's."""
    if not isinstance(call, ast.Call) or any(isinstance(argument, ast.Starred) for argument in call.args):
        return ()
    name = getattr(call.func, "attr", None) or getattr(call.func, "id", "")
    return call.args if name in names else ()


def _other_value(left: ast.expr, right: ast.expr, source: Source, chance: random.Random) -> Edit:
    """Return the edit by which one side is another value: another literal, or else a pair of it and a number."""
    leaves = [leaf for side in (right, left) if _literal(side) for leaf in ast.walk(side)]
    plain = [leaf for leaf in leaves if isinstance(leaf, ast.Constant) and type(leaf.value) in (int, float, str)]
    if plain:
        leaf = chance.choice(plain)
        begin, end = source.span(leaf)
        return Edit(begin, end, repr(_other(leaf.value, chance)))
    begin, end = source.span(right)
    return Edit(begin, end, f"({source.content[begin:end].decode()}, {chance.randrange(1000)})")


def _literal(node: ast.expr) -> bool:
    """Return whether an expression is a value that is written out."""
    try:
        ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return False
    return True


def _other(value: object, chance: random.Random) -> object:
    """Return another number, which is another one as a float too, or a longer text."""
    if isinstance(value, (int, float)):
        return 2 * value + chance.randrange(1, 1000)
    return f"{value}{chance.choice('abcdefghijklmnopqrstuvwxyz')}"


def _other_exception(kind: ast.expr, source: Source, chance: random.Random) -> Edit:
    """Return the edit by which another exception is expected."""
    begin, end = source.span(kind)
    named = source.content[begin:end].decode()
    return Edit(begin, end, chance.choice([name for name in EXCEPTIONS if not re.search(rf"\b{name}\b", named)]))


if __name__ == "__main__":
    main()
