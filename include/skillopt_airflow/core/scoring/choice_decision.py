"""What rules are certain of where an answer names a choice; the rest is for a judge."""

import re
from collections.abc import Mapping

from skillopt_airflow.core.scoring.choice_match import choices_named
from skillopt_airflow.core.scoring.maths_text import same_maths

_LETTERS = re.compile(r"\W*(?:(?:boxed|text|textbf|mathrm)\W+)*(?:[A-Za-z]|[A-H](?:(?:\W|\band\b|\bor\b)*[A-H])+)\W*")
"""One letter or several, whether or not they are those of choices."""


def choice_decision(answer: str, right: frozenset[str], choices: Mapping[str, str]) -> bool | None:
    """Return whether an answer names exactly the right choices; None if that is not certain.

    Args:
        answer: letters, the texts of choices, or both.
        right: the letters of the right choices.
        choices: the choices' texts by letter; a text may be empty where only the letter is known.
    """
    named = letters_named(answer, choices)
    if named == right:
        return True
    if _LETTERS.fullmatch(answer) or 0 < len(named) <= len(right):
        return False
    return None


def letters_named(answer: str, choices: Mapping[str, str]) -> frozenset[str]:
    """Return the letters of the choices that an answer names, also by a text with the value of exactly one."""
    named = choices_named(answer, dict(choices))
    if named:
        return named
    same = frozenset(letter for letter, text in choices.items() if same_maths(answer, text))
    return same if len(same) == 1 else frozenset()
