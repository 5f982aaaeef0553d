"""Scoring by the wording: exact match, token F1, containment, a regular expression."""

import re
import string
from collections import Counter
from typing import Literal

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.scoring.extraction import why_no_pattern
from skillopt_airflow.core.scoring.scoring_rule import Scoring


class Exact(Scoring):
    """Right if the answer is the reference, but for blanks around it."""

    by: Literal["exact"] = "exact"
    normalised: bool = False
    """Also leaves case, punctuation and articles out of account, as SQuAD v1.1 does, unless a reference is no more."""

    def compare(self, answer: str, expected: str) -> tuple[float, float]:
        """Compare the texts, normalised or not."""
        # The grade A is an article to SQuAD, and any answer without a word would be right.
        normalised = self.normalised and normalise(expected) != ""
        same = normalise(answer) == normalise(expected) if normalised else answer.strip() == expected.strip()
        return float(same), float(same)


class TokenF1(Scoring):
    """Exact match after normalisation as hard score, token F1 as soft score: the evaluation of SQuAD v1.1."""

    by: Literal["f1"] = "f1"

    def compare(self, answer: str, expected: str) -> tuple[float, float]:
        """Compare the normalised texts, and their tokens."""
        return float(normalise(answer) == normalise(expected)), token_f1(answer, expected)


class Contains(Scoring):
    """Right if the reference occurs in the answer, both normalised as in SQuAD v1.1."""

    by: Literal["contains"] = "contains"
    whole_words: bool = True
    """Not inside of a longer word; false for languages without blanks between words."""

    def check_text(self, expected: str) -> None:
        """Refuse what every answer contains."""
        if not normalise(expected):
            raise DataError(f"expected a text with more than articles and punctuation, got {expected!r}")

    def compare(self, answer: str, expected: str) -> tuple[float, float]:
        """Look for the normalised reference."""
        within, wanted = normalise(answer), normalise(expected)
        found = f" {wanted} " in f" {within} " if self.whole_words else wanted in within
        return float(found), float(found)


class Matches(Scoring):
    """Right if the reference, a regular expression, matches somewhere in the answer."""

    by: Literal["regex"] = "regex"

    def check_text(self, expected: str) -> None:
        """Refuse what is no regular expression."""
        reason = why_no_pattern(expected)
        if reason:
            raise DataError(f"expected a regular expression, got {reason}")

    def compare(self, answer: str, expected: str) -> tuple[float, float]:
        """Search the answer."""
        found = re.search(expected, answer) is not None
        return float(found), float(found)


def normalise(text: str) -> str:
    """Return a text in lower case, without punctuation, articles and surplus blanks (SQuAD v1.1 evaluation)."""
    kept = "".join(character for character in text.lower() if character not in string.punctuation)
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", kept).split())


def token_f1(answer: str, reference: str) -> float:
    """Return the harmonic mean of token precision and recall after normalisation (SQuAD v1.1 evaluation)."""
    answered, expected = normalise(answer).split(), normalise(reference).split()
    if not answered or not expected:
        return float(answered == expected)
    common = sum((Counter(answered) & Counter(expected)).values())
    return 2 * common / (len(answered) + len(expected))
