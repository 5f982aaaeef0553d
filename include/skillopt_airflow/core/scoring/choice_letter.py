"""Taking the letter of a choice from a response."""

import re
from string import ascii_uppercase
from typing import Literal

from pydantic import Field

from skillopt_airflow.core.scoring.choice_statement import Statement, ends, statement
from skillopt_airflow.core.scoring.extraction import Boxed, Extraction, InTags, last_line

_ALONE = re.compile(r"[\s*_`\"'$(\[]*(?P<letter>[A-Za-z])[\s*_`\"'$)\].:!]*")


class ChoiceLetter(Extraction):
    r"""The letter of the choice that a response states as its answer, or the only one that it names and doesn't reject.

    Answer tags and \boxed{} come first, then a last line that is a letter, then the last statement.
    """

    from_: Literal["choice"] = Field(default="choice", alias="from")

    def find(self, response: str) -> str | None:
        """Return the letter as a capital, or the content of tags or box if that states none; empty if ambiguous."""
        marked = InTags().find(response)
        if marked is None:
            marked = Boxed().find(response)
        alone = _ALONE.fullmatch(last_line(response) if marked is None else marked)
        if alone:
            return alone["letter"].upper()
        found = settled(response if marked is None else marked)
        if marked is not None:
            return min(found.letters) if found.certain and len(found.letters) == 1 else marked
        if len(found.letters) == 1:
            return min(found.letters)
        return "" if found.rejected or found.letters else None


def settled(response: str) -> Statement:
    """Return what a response states, of all letters."""
    return statement(response, frozenset(ascii_uppercase))


def stated_line(response: str) -> str | None:
    """Return the line of the last statement of letters, which may name a choice by its text as well."""
    place, lines = settled(response).line, ends(response).split("\n")
    return lines[place].strip() if place is not None and place < len(lines) else None
