"""Scoring by figures like OfficeQA's official scorer (databricks/officeqa, reward.py at 7b9a3c1)."""

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal, NamedTuple

from pydantic import Field

from skillopt_airflow.tasks.scoring.scoring_rule import Scoring

MAX_CHARS = 250
"""Longer answers are wrong: they are prose."""
_UNIT_CHARS = 20
"""Distance from a number within which its unit is searched."""
_MARKUP = re.compile(r"<[^>]*>")
_CURRENCY = "[$£€¥₹¢₩₽]"
_IN_PARENTHESES = re.compile(rf"\(\s*({_CURRENCY})?\s*(\d{{1,3}}(?:,\d{{3}})*(?:\.\d+)?|\d+(?:\.\d+)?)\s*\)")
_THOUSANDS = re.compile(r"(?<![\d.])\d{1,3}(?:,\d{3})+(?:\.\d+)?(?!\d)")
# The official scorer reads .21 as 21; here it is 0.21.
_NUMBER = re.compile(r"(-?(?:\d+\.?\d*|(?<![\w.])\.\d+))%?")
_ELEMENT = re.compile(r"(-?(?:(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|\.\d+))%?")
_LIST = re.compile(r"\[([^\[\]]+)\]")
_UNITS = {
    "trillion": re.compile(r"\btrillions?\b", re.IGNORECASE),
    "billion": re.compile(r"\b(?:billions?|b)\b", re.IGNORECASE),
    "million": re.compile(r"\b(?:millions?|m)\b", re.IGNORECASE),
    "thousand": re.compile(r"\b(?:thousands?|k)\b", re.IGNORECASE),
}
_NO_WORDS = re.compile(r"\b(?:(?:thousand|million|billion|trillion|hundred)s?|percent(?:age)?)\b|[^\w\s]")
_REMARK = re.compile(r"\([^)]*\)")
_GIVEN_UP = "unable to determine"


class Figure(NamedTuple):
    """A number as written, and the unit near it."""

    value: Fraction
    unit: str
    """Empty if there is none; the value isn't multiplied by it."""

    @property
    def is_year(self) -> bool:
        """True if the number may be a year that an answer only mentions."""
        return self.value.denominator == 1 and 1900 <= self.value <= 2100


class FigureMatch(Scoring):
    """Right if the answer has exactly the reference's figures, within a tolerance.

    * An answer is one line without markup.
    * Units are compared if both have one, and amounts as written: 543 million equals 543, but not 543000000.
    * Years count only if the reference has one, or has words and one figure.
    * Without figures, the texts must be equal except for case, quotes around them and remarks in parentheses.
    * With words and figures, the words of one must contain those of the other.
    * Lists in brackets are compared in order.
    """

    by: Literal["figures"] = "figures"
    relative: float = Field(default=0.0, ge=0.0, le=1.0)
    """The tolerance as a share of the reference."""

    def compare(self, answer: str, expected: str) -> tuple[float, float]:
        right = _is_one_line(answer) and self._right(_plain(answer), _plain(expected))
        return float(right), float(right)

    def _right(self, answer: str, expected: str) -> bool:
        reference, answered = figures(expected), figures(answer)
        if not reference or not answered:
            return not reference and not answered and _words_only(answer) == _words_only(expected)
        if _MARKUP.search(answer):
            return False
        words, tolerance = _words_beside(expected), Fraction(str(self.relative))
        if not any(figure.is_year for figure in reference) and (len(reference) > 1 or not words):
            answered = [figure for figure in answered if not figure.is_year]
        same_count = len(answered) == len(reference)
        listed = _LIST.search(expected) and len(reference) > 1
        if listed and _is_list_of(expected, reference, Fraction(0), labels_only=True):
            in_order = same_count and all(_same(*pair, tolerance) for pair in zip(answered, reference, strict=True))
            return in_order or _is_list_of(answer, reference, tolerance)
        beside = _words_beside(answer)
        if not same_count or (words and not (beside and (words in beside or beside in words))):
            return False
        return all(any(_same(figure, wanted, tolerance) for figure in answered) for wanted in reference)


def figures(text: str) -> list[Figure]:
    """Return the numbers of a text. Parentheses make a number negative, as in accounting, unless it is a year."""
    text = _THOUSANDS.sub(lambda number: number[0].replace(",", ""), _formatted(text))
    return [Figure(Fraction(match[1]), _unit_near(text, match)) for match in _NUMBER.finditer(text)]


def _formatted(text: str) -> str:
    """Remove currency signs, and replace parentheses around an amount by a minus."""

    def negative(match: re.Match[str]) -> str:
        is_year = Figure(Fraction(match[2].replace(",", "")), "").is_year
        return match[0] if is_year and not match[1] else f"-{match[2]}"

    return re.sub(_CURRENCY, "", _IN_PARENTHESES.sub(negative, text))


def _is_list_of(text: str, expected: Sequence[Figure], tolerance: Fraction, *, labels_only: bool = False) -> bool:
    """Return whether the numbers between commas are the expected ones, in order; commas may also separate thousands.

    The list is in the only pair of brackets, with no digits outside; else it is the whole text, unless `labels_only`.
    """
    inside = _LIST.findall(text)
    if len(inside) != 1 or re.search(r"\d", _LIST.sub("", text)):
        if labels_only:
            return False
        inside = [text]
    parts = inside[0].split(",")
    ends = {0}
    for wanted in expected:
        ends = {
            end
            for start in ends
            for end in range(start + 1, len(parts) + 1)
            if (element := _ELEMENT.fullmatch(_formatted(",".join(parts[start:end]).strip())))
            and _same(Figure(Fraction(element[1].replace(",", "")), ""), wanted, tolerance)
        }
    return len(parts) in ends


def _same(answered: Figure, expected: Figure, tolerance: Fraction) -> bool:
    if answered.unit and expected.unit and answered.unit != expected.unit:
        return False
    return abs(answered.value - expected.value) <= tolerance * abs(expected.value)


def _unit_near(text: str, number: re.Match[str]) -> str:
    """Return the unit near a number, as a whole word: the m of March isn't one."""
    start, end = max(0, number.start() - _UNIT_CHARS), number.end() + _UNIT_CHARS
    found = ((name, pattern.search(text, start)) for name, pattern in _UNITS.items())
    return next((name for name, unit in found if unit is not None and unit.end() <= end), "")


def _is_one_line(answer: str) -> bool:
    lines = [line for line in answer.splitlines() if line.strip()]
    return len(lines) == 1 and len(answer.strip()) <= MAX_CHARS and _GIVEN_UP not in answer.lower()


def _plain(text: str) -> str:
    return " ".join(text.replace("−", "-").split())


def _words_only(text: str) -> str:
    return " ".join(_REMARK.sub("", text.lower().strip('"').strip("'")).split())


def _words_beside(text: str) -> str:
    """Return the words around figures and units; a single letter counts as none."""
    without = re.sub(r"-?\d+\.?\d*%?|,|\b%\b", "", text.lower())
    words = " ".join(_NO_WORDS.sub(" ", without).split())
    return words if len(words) > 1 else ""
