"""Scoring by a list of which all entries are wanted."""

import re
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Literal

from pydantic import JsonValue

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.scoring.json_answer import as_text, json_values
from skillopt_airflow.core.scoring.json_fields import FieldRule
from skillopt_airflow.core.scoring.scoring_rule import Scoring, alternatives, listed
from skillopt_airflow.core.scoring.text_match import Exact, same_words
from skillopt_airflow.core.types import JsonObject, Score

MAX_PARTS = 1000
"""Parts that an answer is divided into; the rest is one entry."""
_BULLET = re.compile(r"^ ?(?:[-*•+]|\(?\d{1,3}[.)]) ", re.MULTILINE)
_LEAD_IN = re.compile(r"\A[^:\n]*:(?=\s)")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_DIVIDER = re.compile(r"(\s*[\n,;|、，；]\s*(?:(?:and|&) )?| (?:and|&) )", re.IGNORECASE)


class ListMatch(Scoring):
    """Right if the answer has all entries of the reference and no others; the soft score is the F1 of the entries.

    A reference is a list, or a text with a list in JSON or Python, or with entries between `|`, `;` or line breaks. An
    answer may be a list in JSON or Python, lines, or entries between commas, semicolons or `and`.
    """

    by: Literal["list"] = "list"
    each: FieldRule = Exact(normalized=True)
    """The rule that compares an entry."""
    ordered: bool = False
    """True if the entries have to be in the order of the reference."""

    def check(self, reference: JsonValue, public: JsonObject) -> None:
        """Refuse a list with an entry that the rule of the entries refuses."""
        for place, entry in enumerate(_wanted(reference)):
            try:
                self.each.check(entry, public)
            except DataError as error:
                raise DataError(f"[{place}]: {error}") from None

    def scored(self, answer: str, reference: JsonValue, public: JsonObject) -> Score:
        """Compare the reading of the answer that fits best."""
        wanted = _wanted(reference)
        read = ((self._found(entries, wanted), entries) for entries in _readings(answer, wanted))
        scores = [(2 * found / (len(entries) + len(wanted)), found, len(entries)) for found, entries in read]
        soft, found, given = max(scores, default=(0.0, 0, 0))
        told = f'{found} of {len(wanted)} entries are right, of {given} in the answer: "{answer}"'
        return Score(hard=float(soft == 1.0), soft=soft, feedback=f"expected all of {as_text([*wanted])}; {told}")

    def _found(self, entries: Sequence[str], wanted: Sequence[str]) -> int:
        """Return the number of entries that are right; if the order counts, those of the longest run in order."""
        left, found, ends = dict(enumerate(wanted)), 0, list[int]()
        for entry in entries:
            place = next((place for place, one in left.items() if self.each.compare(entry, one)[0] == 1.0), None)
            if place is not None:
                del left[place]
                found += 1
                at = bisect_left(ends, place)
                ends[at : at + 1] = [place]
        return len(ends) if self.ordered else found


def _wanted(reference: JsonValue) -> list[str]:
    """Return the entries of a reference.

    Raises:
        DataError: there is none, or one is neither a text nor a number.
    """
    values = listed(reference)
    if isinstance(values, str):
        values = [part for part in re.split(r"[|;\n]", values) if part.strip()]
    return alternatives(values)


def _readings(answer: str, wanted: Sequence[str]) -> Iterator[list[str]]:
    """Yield the lists that an answer may be read as: JSON or Python, else by its dividers."""
    lists = [value for value in json_values(answer, lambda value: isinstance(value, list)) if isinstance(value, list)]
    with suppress(DataError):
        value = listed(answer.strip())
        lists += [value] if isinstance(value, list) else []
    if lists:
        yield [as_text(entry) for entry in lists[-1]]
    inside = answer.strip()
    inside = inside[1:-1] if inside.startswith("[") and inside.endswith("]") else inside
    plain = _BULLET.sub("", re.sub(r"[^\S\n]+", " ", inside))
    for text in (plain, _LEAD_IN.sub("", plain)):
        yield _entries(text, wanted)
        yield _entries(_THOUSANDS.sub("", text), wanted)


def _entries(text: str, wanted: Sequence[str]) -> list[str]:
    """Return the parts between dividers; a divider inside an entry that is wanted divides nothing."""
    parts = _DIVIDER.split(text.strip(), maxsplit=MAX_PARTS)
    longest = max(len(_DIVIDER.split(one)) for one in wanted)
    entries, start = list[str](), 0
    while start < len(parts):
        runs = ("".join(parts[start : start + size]) for size in range(longest, 1, -2))
        entry = next((run for run in runs if any(same_words(run, one) for one in wanted)), parts[start])
        entries.append(entry)
        start += len(_DIVIDER.split(entry)) + 1
    return [entry for entry in entries if entry.strip()]
