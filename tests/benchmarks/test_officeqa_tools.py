"""The calculator of models: exact decimals, nothing that is executed, and refusals that say what to write."""

import asyncio
import re
from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.officeqa.tools import MAX_CHARS, calculate, calculated


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("0.1 + 0.2", "0.3"),
        ("-5 + +3", "-2"),
        ("7 % 4", "3"),
        ("10 ** 20", "100000000000000000000"),
        ("1e3", "1000.0"),
        ("round((1234.5 - 1200) / 1200 * 100, 2)", "2.88"),
        ("round(-2.345, 2)", "-2.35"),
        ("round(1234, -2)", "1200"),
        ("sqrt(2.25)", "1.5"),
        ("mean(1, 2, 6)", "3"),
        ("round(log(exp(2)), 6)", "2.000000"),
        (" 1\n", "1"),
    ],
)
def test_arithmetic_in_decimals(expression: str, result: str) -> None:
    assert asyncio.run(calculate(expression)) == result


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("1,234.5 + 1", "'(1, 234.5 + 1)' is no arithmetic"),
        ("1 +", "is no arithmetic"),
        ("x + 1", "'x' is no arithmetic"),
        ("'a' * 3", "is no arithmetic"),
        ("True + 1", "is no arithmetic"),
        ("__import__('os').system('true')", "is no arithmetic"),
        ("round.__call__(1)", "is no arithmetic"),
        ("round(number=1)", "is no arithmetic"),
        ("1 / 0", "it divides by zero"),
        ("9 ** 9 ** 9", "too large"),
        ("9e9999 * 10", "too large"),
        ("sqrt(-1)", "not defined"),
        ("round(1, 1.5)", "how many decimals"),
        ("abs(1, 2)", "take one number"),
        ("(" * 60 + "1" + ")" * 60 + "+1" * 60, "nested"),
        ("1" * (MAX_CHARS + 1), f"{MAX_CHARS} characters"),
    ],
)
def test_what_is_no_arithmetic_is_refused_with_what_to_write(expression: str, why: str) -> None:
    with pytest.raises(ValueError, match=re.escape(why)):
        calculated(expression)


@given(st.decimals(-(10**9), 10**9, places=3), st.decimals(-(10**9), 10**9, places=3))
def test_sums_and_differences_lose_no_digit(one: Decimal, other: Decimal) -> None:
    assert calculated(f"{one} + {other}") == one + other
    assert calculated(f"({one}) - ({other})") == one - other


@given(st.text(max_size=30))
def test_any_text_has_a_value_or_is_refused(text: str) -> None:
    with suppress(ValueError):
        assert isinstance(calculated(text), Decimal)
