"""The decision on an answer that names a choice, where rules are certain of it; the rest is for a judge."""

import re
from collections.abc import Mapping

from skillopt_airflow.core.scoring.choice_match import found_choices, plain
from skillopt_airflow.core.scoring.extraction import Boxed
from skillopt_airflow.core.scoring.maths_text import same_maths

_FONT = r"\W*(?:(?:text|textbf|textrm|mathrm|mathbf)\W+)?"
_LETTERS = re.compile(rf"{_FONT}(?:[A-Za-z]|[A-H](?:(?:\W|\band\b|\bor\b)*[A-H])+)\W*")
"""One letter or several, whether or not they are those of choices."""


def choice_decision(answer: str, right: frozenset[str], choices: Mapping[str, str]) -> bool | None:
    """Return whether an answer names exactly the right choices; None if that is not certain.

    It is certain if the answer states letters, or is the text or the value of a choice.

    Args:
        answer: letters, the texts of choices, or both.
        right: the letters of the right choices.
        choices: the choices' texts by letter; a text may be empty where only the letter is known.
    """
    box = Boxed().find(answer)
    told = answer if box is None else box
    found, letters = found_choices(told, dict(choices)), _LETTERS.fullmatch(told) is not None
    named = found.letters or _with_the_value(told, choices)
    if not (letters or found.certain or _with_the_text(told, choices)):
        return None
    if named == right:
        return True
    return False if letters or 0 < len(named) <= len(right) else None


def letters_named(answer: str, choices: Mapping[str, str]) -> frozenset[str]:
    """Return the letters of the choices that an answer names, also by a text with the value of exactly one."""
    return found_choices(answer, dict(choices)).letters or _with_the_value(answer, choices)


def _with_the_value(answer: str, choices: Mapping[str, str]) -> frozenset[str]:
    same = frozenset(letter for letter, text in choices.items() if same_maths(answer, text))
    return same if len(same) == 1 else frozenset()


def _with_the_text(answer: str, choices: Mapping[str, str]) -> bool:
    wanted = plain(answer).lower()
    return any(text and (plain(text).lower() == wanted or same_maths(answer, text)) for text in choices.values())
