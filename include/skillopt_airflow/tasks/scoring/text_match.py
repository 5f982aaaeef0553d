"""Scoring by wording: exact match, token F1, containment, a regular expression, similarity (ANLS)."""

import re
import string
from collections import Counter
from functools import lru_cache
from typing import Literal

import regex
from pydantic import Field

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.tasks.scoring.extraction import PATTERN_SECONDS, pattern_flaw
from skillopt_airflow.tasks.scoring.scoring_rule import Scoring


class Anls(Scoring):
    """Equality as hard score, similarity as soft score; case and the amount of whitespace don't count."""

    by: Literal["anls"] = "anls"
    threshold: float = Field(default=0.5, gt=0.0, le=1.0)
    """Share of differing characters from which the soft score is 0."""

    def compare(self, answer: str, expected: str) -> tuple[float, float]:
        one, other = " ".join(answer.lower().split()), " ".join(expected.lower().split())
        longer = max(len(one), len(other))
        # The distance is at least the difference of the lengths, so an answer that is far too long is skipped.
        if one == other:
            return 1.0, 1.0
        if abs(len(one) - len(other)) >= self.threshold * longer:
            return 0.0, 0.0
        distance = levenshtein(one, other) / longer
        return 0.0, 1.0 - distance if distance < self.threshold else 0.0


def levenshtein(one: str, other: str) -> int:
    """Return the edit distance between two texts.

    Two integers with one bit per character show where a row of the usual table rises and falls (Hyyrö 2003).
    """
    if not one:
        return len(other)
    places: dict[str, int] = {}
    for place, character in enumerate(one):
        places[character] = places.get(character, 0) | 1 << place
    every, last, distance = (1 << len(one)) - 1, 1 << (len(one) - 1), len(one)
    rises, falls = every, 0
    for character in other:
        same = places.get(character, 0)
        level = (((same & rises) + rises) ^ rises) | same | falls
        up, down = falls | (every & ~(level | rises)), rises & level
        distance += bool(up & last) - bool(down & last)
        up, down = (up << 1 | 1) & every, (down << 1) & every
        rises, falls = down | (every & ~(level | up)), up & level
    return distance


_TYPOGRAPHY = str.maketrans("\u2212\u2013", "--", "“”„‘’«»")
_THOUSANDS = re.compile(r"(?<![\d.,])\d{1,3}(?:,\d{3})+(?!\d|,\d)")
_SIGNIFICANT = re.compile(
    r"""
    \d | [+<>=^%~|&] | !(?==) | (?<!\w)!(?=\w) | (?<=[\d)])!(?!\w)     # digits, and signs between them
    | (?<![^\W\d])\.(?=\d) | (?<=\d)[,:](?=\d)       # 3.5, 3,5 and 3:45 aren't 35
    | (?<![^\W\d]{2})-(?=[$€£¥]?\.?\d)               # -5 and x-3; not COVID-19
    | (?<=\d[ ])-(?=[ ](?:\d|\w\b)) | (?<=\b\w[ ])-(?=[ ]\w\b) | (?<=\b\w)-(?=\w\b) | (?<!\w)-(?=\w\b)
    | (?<=\w)-(?![\w-]) | (?<=\w)\#                  # A- and C#
    | (?<=[\w)])(?:\*\*?|/)(?=[\w(]) | (?<=[\w)][ ])(?:\*\*?|/)(?=[ ][\w(])
    | (?<=[-+*/^])\( | (?<=[-+*/^][ ])\( | \)(?=[ ]?[-+*/^])
    | \ba\b(?=[ ]?[-+*/^<>=]) | (?<=[-+*/^<>=])\ ?a\b   # a variable, not an article
    """,
    re.VERBOSE,
)
"""Characters between words that change the meaning."""


class Exact(Scoring):
    """Right if the answer equals the reference, except for surrounding whitespace."""

    by: Literal["exact"] = "exact"
    normalized: bool = False
    """Also ignores case, articles, and punctuation outside of numbers, formulas and names like C++. If that would
    empty a reference, such as the grade A, ignores only case."""

    def compare(self, answer: str, expected: str) -> tuple[float, float]:
        same = same_words(answer, expected) if self.normalized else answer.strip() == expected.strip()
        return float(same), float(same)


class TokenF1(Scoring):
    """Exact match after normalization as hard score, token F1 as soft score, as in SQuAD v1.1."""

    by: Literal["f1"] = "f1"

    def compare(self, answer: str, expected: str) -> tuple[float, float]:
        return float(normalize(answer) == normalize(expected)), token_f1(answer, expected)


class Contains(Scoring):
    """Right if the answer contains the reference, both normalized as in SQuAD v1.1."""

    by: Literal["contains"] = "contains"
    whole_words: bool = True
    """Don't match inside longer words; false for languages without spaces between words."""

    def check_text(self, expected: str) -> None:
        if not normalize(expected):
            raise DataError(f"expected more than articles and punctuation, got {expected!r}")

    def compare(self, answer: str, expected: str) -> tuple[float, float]:
        within, wanted = normalize(answer), normalize(expected)
        found = f" {wanted} " in f" {within} " if self.whole_words else wanted in within
        return float(found), float(found)


class Matches(Scoring):
    """Right if the reference, a regular expression, matches anywhere in the answer."""

    by: Literal["regex"] = "regex"

    def check_text(self, expected: str) -> None:
        if reason := pattern_flaw(expected):
            raise DataError(f"expected a regular expression, got {reason}")

    def compare(self, answer: str, expected: str) -> tuple[float, float]:
        """Search the answer; raise TimeoutError after PATTERN_SECONDS."""
        found = regex.search(expected, answer, timeout=PATTERN_SECONDS) is not None
        return float(found), float(found)


def same_words(answer: str, expected: str) -> bool:
    """Return whether two texts are equal after SQuAD's normalization and have the same numbers and operators.

    Thousands separators and dollar signs don't count: 1,000 equals 1000 and $5 equals 5, but 50% doesn't equal 50.
    """
    (one, words, marks), (other, expected_words, expected_marks) = _reading(answer), _reading(expected)
    return (words, marks) == (expected_words, expected_marks) if expected_words else one == other


# Cached because a list's entries are each compared with all expected ones.
@lru_cache(maxsize=256)
def _reading(text: str) -> tuple[str, str, str]:
    plain = text.translate(_TYPOGRAPHY).strip().lower().removeprefix("+")
    plain = _THOUSANDS.sub(lambda number: number[0].replace(",", ""), plain)
    return plain, normalize(plain), "".join(_SIGNIFICANT.findall(plain)).replace(" ", "")


def normalize(text: str) -> str:
    """Return a text in lower case, without punctuation, articles and extra whitespace (SQuAD v1.1 evaluation)."""
    words = "".join(character for character in text.lower() if character not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", words).split())


def token_f1(answer: str, reference: str) -> float:
    """Return the harmonic mean of token precision and recall after normalization (SQuAD v1.1 evaluation)."""
    answered, expected = normalize(answer).split(), normalize(reference).split()
    if not answered or not expected:
        return float(answered == expected)
    common = sum((Counter(answered) & Counter(expected)).values())
    return 2 * common / (len(answered) + len(expected))
