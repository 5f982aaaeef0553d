"""Scoring by figures as OfficeQA's official scorer does: numbers, their units, and the words around them."""

import re
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal, NamedTuple

from pydantic import Field

from skillopt_airflow.core.scoring.scoring_rule import Scoring

MAX_CHARS = 250
"""Characters of an answer; a longer one is no answer but a text."""
_UNIT_CHARS = 20
"""Characters around a number in which its unit stands."""
_MARKUP = re.compile(r"</?[A-Za-z][^<>]*>")
_NUMBER = re.compile(
    r"(?P<open>\()?(?P<sign>(?<![\w.)])-)?\s?\$?\s?(?P<digits>\d{1,3}(?:,\d{3})+(?![\d])(?:\.\d+)?|\d+(?:\.\d+)?|\.\d+)"
    r"\s?%?(?P<close>\))?"
)
_UNITS = {
    "trillion": re.compile(r"\btrillions?\b", re.IGNORECASE),
    "billion": re.compile(r"\b(?:billions?|b)\b", re.IGNORECASE),
    "million": re.compile(r"\b(?:millions?|m)\b", re.IGNORECASE),
    "thousand": re.compile(r"\b(?:thousands?|k)\b", re.IGNORECASE),
}
_SAME_SIGNS = str.maketrans({"−": "-", "–": "-", "“": '"', "”": '"', "’": "'"})
_NO_WORDS = re.compile(
    r"\b(?:thousands?|millions?|billions?|trillions?|hundreds?|percent(?:age)?|per cent|[kmb])\b|[^\w\s]|_"
)
_REMARK = re.compile(r"\([^()]*\)")
_GIVEN_UP = "unable to determine"


class Figure(NamedTuple):
    """A number as it was written, and the unit that is named near it."""

    value: Fraction
    unit: str
    """Empty if none is named; the value is not multiplied by it."""

    @property
    def is_year(self) -> bool:
        """Return whether the number may be a year that an answer mentions by the way."""
        return self.value.denominator == 1 and 1900 <= abs(self.value) <= 2100


class FigureMatch(Scoring):
    """Right if the answer has the reference's figures, and no others, within a tolerance.

    An answer is one line without markup. A unit counts where both name one, and the amount is compared as it is
    written: 543 million is right as 543, and wrong as 543000000. Years beside a figure do not count. A reference
    without figures has to be met word by word, but for case, quotes and what stands in parentheses; one with words and
    figures needs both; a list in brackets is met in its order.
    """

    by: Literal["figures"] = "figures"
    relative: float = Field(default=0.0, ge=0.0, le=1.0)
    """The difference that is still right, as a share of the reference."""

    def compare(self, answer: str, expected: str) -> tuple[float, float]:
        """Compare the figures and words; there is no partial credit."""
        right = _is_one_line(answer) and self._right(_plain(answer), _plain(expected))
        return float(right), float(right)

    def _right(self, answer: str, expected: str) -> bool:
        if expected.startswith("[") and expected.endswith("]"):
            return self._lists(_parts(answer), _parts(expected, r",\s+" if re.search(r",\s", expected) else ","))
        reference = figures(expected)
        if not reference:
            return _words_alone(answer) == _words_alone(expected)
        words = _words_beside(expected)
        if words and words not in _words_beside(answer):
            return False
        answered = figures(answer)
        if not (words or any(figure.is_year for figure in reference)):
            answered = [figure for figure in answered if not figure.is_year]
        pairs = zip(sorted(answered), sorted(reference), strict=False)
        return len(answered) == len(reference) and all(self._same(*pair) for pair in pairs)

    def _lists(self, answered: Sequence[str], expected: Sequence[str]) -> bool:
        """Compare two lists; a comma in the answer may divide thousands instead of elements."""
        if not expected:
            return not answered
        rest = expected[1:]
        for taken in range(1, len(answered) - len(rest) + 1):
            element, others = answered[:taken], answered[taken:]
            is_one = taken == 1 or all(re.fullmatch(r"\d{3}(?:\.\d+)?\W*", part) for part in element[1:])
            if is_one and self._right(",".join(element), expected[0]) and self._lists(others, rest):
                return True
        return False

    def _same(self, answered: Figure, expected: Figure) -> bool:
        if answered.unit and expected.unit and answered.unit != expected.unit:
            return False
        return abs(answered.value - expected.value) <= Fraction(str(self.relative)) * abs(expected.value)


def figures(text: str) -> list[Figure]:
    """Return the numbers of a text; in parentheses they are negative, as accountants write it, unless it is a year."""
    found = []
    for match in _NUMBER.finditer(text):
        value = Fraction(match["digits"].replace(",", ""))
        figure = Figure(-value if match["sign"] else value, _unit_near(text, match))
        in_parentheses = match["open"] and match["close"] and not figure.is_year
        found.append(figure._replace(value=-abs(value)) if in_parentheses else figure)
    return found


def _unit_near(text: str, number: re.Match[str]) -> str:
    """Return the unit that is named around a number, in whole words: the m of March is none."""
    start, end = max(0, number.start() - _UNIT_CHARS), number.end() + _UNIT_CHARS
    found = ((name, pattern.search(text, start)) for name, pattern in _UNITS.items())
    return next((name for name, unit in found if unit is not None and unit.start() <= end), "")


def _is_one_line(answer: str) -> bool:
    lines = [line for line in answer.splitlines() if line.strip()]
    short = len(lines) == 1 and len(answer.strip()) <= MAX_CHARS
    return short and not _MARKUP.search(answer) and _GIVEN_UP not in answer.lower()


def _plain(text: str) -> str:
    return text.translate(_SAME_SIGNS).strip()


def _parts(text: str, comma: str = ",") -> list[str]:
    inner = text.strip().removeprefix("[").removesuffix("]")
    return [part.strip() for part in re.split(";" if ";" in inner else comma, inner) if part.strip()]


def _words_alone(text: str) -> str:
    """Return a text without figures, as it is compared."""
    return " ".join(_REMARK.sub(" ", text.lower()).replace('"', "").replace("'", "").split())


def _words_beside(text: str) -> str:
    """Return the words around figures and units; empty if there are none but a stray letter."""
    words = " ".join(_NO_WORDS.sub(" ", _NUMBER.sub(" ", text.lower())).split())
    return words if len(words) > 1 else ""
