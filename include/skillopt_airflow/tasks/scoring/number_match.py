"""Scoring by the last number in an answer."""

import re
from fractions import Fraction
from typing import Literal, NamedTuple

from pydantic import Field

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.tasks.scoring.scoring_rule import Scoring

MAX_DIGITS = 100
"""Longer numbers are ignored."""
_SPELLINGS = (
    (re.compile(r"[−–\u2011](?=[\s$€£¥₹]*[\d.])"), "-"),
    # Non-breaking spaces separate thousands; a plain space may separate two numbers.
    (re.compile(r"(?<=\d)[\u00a0\u2009\u202f](?=\d{3}(?!\d))"), ","),
    (re.compile(r"(?<=\d)(?=\\[dt]?frac)"), " "),
    (re.compile(r"\\[dt]?frac\s*\{([^{}]*)\}\s*\{([^{}]*)\}"), r"\1/\2"),
    (re.compile(r"\{,\}|\\[,!]"), ","),
    (re.compile(r"\\(?=[%$])"), ""),
    (re.compile(r"([-+])\s*[$€£¥₹]\s*"), r"\1"),
    (re.compile(r"[$€£¥₹]"), " "),
    (re.compile(r"\\times|\\cdot|×|·|(?<=\d)\s*[xX](?=\s*10\s*\^)"), "*"),
    (re.compile(r"\*\s+"), "*"),
    (re.compile(r"(?<![\w.*^])10\s*\^\s*(?=\{?[-+]?\d)"), "1*10^"),
)
"""Other spellings of numbers, converted to those that `_NUMBER` matches."""
# The limit avoids quadratic time: a run of groups without a valid end is matched again from each group.
_DECIMAL = rf"(?:\d{{1,3}}(?:,\d{{3}}){{1,{MAX_DIGITS // 3}}}(?![\d,])(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
_NUMBER = re.compile(
    rf"(?<![\w.^])(?<![\^_]\{{)(?P<sign>(?<![)\]])[-+]?)(?:(?P<whole>\d{{1,9}})\s+(?=\d+/\d))?(?P<number>{_DECIMAL})"
    r"(?:[eE](?P<exponent>[-+]?\d{1,3})(?!\d)|\s*\*\s*10\s*\^\s*\{?(?P<power>[-+]?\d{1,3})(?!\d)\}?)?"
    rf"(?:\s*/\s*(?P<denominator>{_DECIMAL}))?(?P<percent>\s*(?:%|per\s?cent\b))?",
)
_RAISED = re.compile(r"(?<=10)[⁻⁺]?[⁰¹²³⁴⁵⁶⁷⁸⁹]+")
_DIGITS = str.maketrans("⁻⁺⁰¹²³⁴⁵⁶⁷⁸⁹", "-+0123456789")
_REMARK = re.compile(r"\([^()]*\)")
_FINAL = "####"
"""The mark before the result in GSM8K's references."""


class Number(NamedTuple):
    """A number as written: 12% has the value 12."""

    value: Fraction
    percent: bool


class NumberMatch(Scoring):
    """Right if the answer's last number equals the reference's, within a tolerance.

    Numbers can have thousands separators, currency signs, fractions, powers of ten, and percent signs. If only one of
    the two has a percent sign, 12% equals both 0.12 and 12. Numbers in parentheses count only if there are no others.
    """

    by: Literal["number"] = "number"
    absolute: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    """The tolerance."""
    relative: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    """The tolerance as a share of the reference; the wider of the two tolerances counts."""

    def check_text(self, expected: str) -> None:
        found = numbers(_final(expected))
        if len(found) != 1:
            raise DataError(f"expected one number, got {expected!r}")

    def compare(self, answer: str, expected: str) -> tuple[float, float]:
        """Compare the numbers as exact fractions."""
        answered, reference = numbers(answer), numbers(_final(expected))
        right = bool(answered) and self._close(answered[-1], reference[-1])
        return float(right), float(right)

    def _close(self, answered: Number, expected: Number) -> bool:
        as_written = self._within(answered.value, expected.value)
        if answered.percent == expected.percent:
            return as_written
        # In the reference's scale, to which the tolerance refers.
        value = answered.value * 100 if expected.percent else answered.value / 100
        return as_written or self._within(value, expected.value)

    def _within(self, answered: Fraction, expected: Fraction) -> bool:
        allowed = max(Fraction(str(self.absolute)), Fraction(str(self.relative)) * abs(expected))
        return abs(answered - expected) <= allowed


def numbers(text: str) -> list[Number]:
    """Return the numbers outside of parentheses, or all numbers if there are none."""
    text = _RAISED.sub(lambda power: f"^{power[0].translate(_DIGITS)}", text)
    for spelling, replacement in _SPELLINGS:
        text = spelling.sub(replacement, text)
    return _read(_REMARK.sub(" ", text)) or _read(text)


def _final(reference: str) -> str:
    return reference.rpartition(_FINAL)[2]


def _read(text: str) -> list[Number]:
    read = (_number(match) for match in _NUMBER.finditer(text))
    return [number for number in read if number is not None]


def _number(match: re.Match[str]) -> Number | None:
    """Return the number of a match; None if it is too long or divided by zero."""
    if len(match[0]) > MAX_DIGITS:
        return None
    value = _fraction(match["number"]) * Fraction(10) ** int(match["exponent"] or match["power"] or 0)
    denominator = _fraction(match["denominator"] or "1")
    if not denominator:
        return None
    value = value / denominator + int(match["whole"] or 0)
    return Number(-value if match["sign"] == "-" else value, percent=match["percent"] is not None)


def _fraction(decimal: str) -> Fraction:
    return Fraction(decimal.replace(",", ""))
