"""Taking the letter of a choice from a response."""

import re
from collections import deque
from typing import Literal

from pydantic import Field

from skillopt_airflow.core.scoring.extraction import Boxed, Extraction, InTags, last_line

_GOES_ON = (
    r"(?:and|as|because|but|by|contains|could|depicts|describes|does|due|fits|for|from|has|if|in|instead|is|matches|may|"
    r"not|of|on|or|over|rather than|seems|should|shows|since|than|that|the|to|was|when|where|which|while|with|would)"
    r"\b(?!-)"
)
"""What may follow a letter, and neither the pronoun I nor an article."""
NO_WORD = rf"(?!['’])(?!(?:(?<=I)|(?<=A)(?<!(?i:answer|choice|option|letter) A))[^\S\n]+(?!{_GOES_ON})[a-z])"
"""Looks ahead from a capital: it is a letter, as in "Option A shows", and no word, as in "I'd", "I think" and
"Answer: A red bus"."""
_CUED = re.compile(
    r"\b(?i:answer|choice|option|letter)(?:\s+(?i:is|would be|should be))?[\s:=*_`\"]*(?:[$(\[{][*$(\[{]*)?"
    r"(?P<letter>[A-Z])(?!_?[A-Za-z0-9])" + NO_WORD
)
_ALONE = re.compile(r"[\s*_`\"'$(\[]*(?P<letter>[A-Za-z])[\s*_`\"'$)\].:!]*")
_FIRST = re.compile(r"[\s*_`\"(\[]*(?P<letter>[A-Z])[*_`\")\].:]+\s.*", re.DOTALL)


class ChoiceLetter(Extraction):
    r"""The letter of the choice that a response settles on.

    In this order: what stands in answer tags or in \boxed{}; the last line if it is a letter; the last letter behind a
    word such as "answer" or "option"; the letter that the last line begins with, as in `B) the Nile`.
    """

    from_: Literal["choice"] = Field(default="choice", alias="from")

    def find(self, response: str) -> str | None:
        """Return the letter as a capital, or what the tags or the box hold if that is more than a letter."""
        marked = InTags().find(response)
        if marked is None:
            marked = Boxed().find(response)
        if marked is not None:
            alone = _ALONE.fullmatch(marked)
            return alone["letter"].upper() if alone else marked
        line = last_line(response)
        cued = deque(_CUED.finditer(response), maxlen=1)
        found = _ALONE.fullmatch(line) or (cued[0] if cued else _FIRST.fullmatch(line))
        return found["letter"].upper() if found else None
