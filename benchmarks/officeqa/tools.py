"""A calculator for models: decimal arithmetic without executing code."""

import ast
import operator
from collections.abc import Callable, Mapping, Sequence
from decimal import Context, Decimal, DecimalException, DivisionByZero, InvalidOperation, Overflow, localcontext

MAX_CHARS = 1000
MAX_DEPTH = 50
MAX_DECIMALS = 20
_PRECISION = Context(prec=28, Emax=9999, Emin=-9999, traps=[DivisionByZero, InvalidOperation, Overflow])
_BINARY: Mapping[type[ast.operator], Callable[[Decimal, Decimal], Decimal]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY: Mapping[type[ast.unaryop], Callable[[Decimal], Decimal]] = {ast.UAdd: operator.pos, ast.USub: operator.neg}
_FUNCTIONS: Mapping[str, Callable[[Sequence[Decimal]], Decimal]] = {
    "abs": lambda given: abs(_only(given)),
    "exp": lambda given: _only(given).exp(),
    "log": lambda given: _only(given).ln(),
    "max": max,
    "mean": lambda given: sum(given, Decimal()) / len(given),
    "min": min,
    "round": lambda given: _rounded(*given),
    "sqrt": lambda given: _only(given).sqrt(),
    "sum": lambda given: sum(given, Decimal()),
}
_HINT = (
    "write numbers without thousands commas or signs of currency and percent, + - * / % ** and parentheses, and "
    f"{', '.join(_FUNCTIONS)}, such as round((1234.5 - 1200) / 1200 * 100, 2)"
)


async def calculate(expression: str) -> str:
    """Calculate an arithmetic expression exactly, in decimals.

    Args:
        expression: numbers, + - * / % ** and parentheses, and abs, exp, log, max, mean, min, round, sqrt, sum, such as
            round((1234.5 - 1200) / 1200 * 100, 2).
    """
    value = calculated(expression)
    return f"{value:f}" if abs(value.adjusted()) < _PRECISION.prec else str(value)


def calculated(expression: str) -> Decimal:
    """Return the value of an expression.

    Raises:
        ValueError: invalid expression; the message has advice for the model.
    """
    if len(expression) > MAX_CHARS:
        raise ValueError(f"an expression may have {MAX_CHARS} characters: calculate it in parts")
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        raise ValueError(f"{expression!r} is no arithmetic: {_HINT}") from error
    with localcontext(_PRECISION):
        try:
            value = _value(tree.body, MAX_DEPTH)
        except DecimalException as error:
            why = "it divides by zero" if isinstance(error, ZeroDivisionError) else "it is too large, or not defined"
            raise ValueError(f"{expression!r} has no value: {why}") from error
    return value


def _value(node: ast.expr, depth: int) -> Decimal:
    if depth == 0:
        raise ValueError(f"the expression is nested more than {MAX_DEPTH} deep: calculate it in parts")
    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(number, bool):
            # repr gives the shortest decimal fraction, usually as written.
            value = Decimal(repr(number))
            if not value.is_finite():
                raise ValueError(f"{ast.unparse(node)} is too large")
            return value
        case ast.BinOp(left=left, op=sign, right=right) if type(sign) in _BINARY:
            return _BINARY[type(sign)](_value(left, depth - 1), _value(right, depth - 1))
        case ast.UnaryOp(op=sign, operand=operand) if type(sign) in _UNARY:
            return _UNARY[type(sign)](_value(operand, depth - 1))
        case ast.Call(func=ast.Name(id=name), args=[_, *_] as given, keywords=[]) if name in _FUNCTIONS:
            return _FUNCTIONS[name]([_value(one, depth - 1) for one in given])
    raise ValueError(f"{ast.unparse(node)!r} is no arithmetic: {_HINT}")


def _only(given: Sequence[Decimal]) -> Decimal:
    if len(given) != 1:
        raise ValueError("abs, exp, log and sqrt take one number")
    return given[0]


def _rounded(number: Decimal, *places: Decimal) -> Decimal:
    """Round half away from zero."""
    digits = places[0] if places else Decimal()
    if len(places) > 1 or abs(digits) > MAX_DECIMALS or digits != int(digits):
        raise ValueError(f"round takes a number and how many decimals it keeps, at most {MAX_DECIMALS}")
    return number.quantize(Decimal(1).scaleb(-int(digits)), rounding="ROUND_HALF_UP")
