"""JSON in responses: extracting the answer, scoring its fields, and scoring lists of entries."""

import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Annotated, ClassVar, Literal

from pydantic import Field, JsonValue

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.text import storable
from skillopt_airflow.core.values.types import JsonObject, Score
from skillopt_airflow.tasks.record_fields import short_repr
from skillopt_airflow.tasks.scoring.extraction import Extraction, is_echo
from skillopt_airflow.tasks.scoring.number_match import NumberMatch, numbers
from skillopt_airflow.tasks.scoring.scoring_rule import Scoring, alternatives, parse_list
from skillopt_airflow.tasks.scoring.text_match import Anls, Contains, Exact, Matches, TokenF1, same_words

_FENCED = re.compile(r"^[ \t]*```[^\n`]*\n(.*?)^[ \t]*```", re.DOTALL | re.MULTILINE)
_OPENING = re.compile(r"""\{\s*["}]|\[\s*[\]\[{"\dtfnNI-]""")
"""The start of an object or a list; most brackets in prose, code and LaTeX don't match."""
MAX_WASTED = 1_000_000
"""Limit of characters read after brackets that turn out not to start a value."""
MIN_WASTED = 10
"""Minimum number of characters that such a bracket counts for."""
CUT_CHARS = 4096
_STEP = r"(?:[^.\[\]]+|\[\d+\])"


class JsonAnswer(Extraction):
    """The value at a path of the last JSON value in a response, preferably in a fenced block.

    Values are ignored if they are empty objects or lists, have nothing at the path, or echo the instruction, such as
    `{"answer": "..."}`.
    """

    last_line_instead: ClassVar[bool] = False

    from_: Literal["json"] = Field(default="json", alias="from")
    path: str = Field(default="", pattern=rf"^(?:\$?\.?{_STEP}(?:\.?{_STEP})*)?$")
    """Keys and positions, such as `result.items[0].name`; empty for the whole value."""

    def find(self, response: str) -> str | None:
        found = [inside for value in json_values(response, self._is_answer) for inside in self._inside(value)]
        return as_text(found[-1]) if found else None

    def _is_answer(self, value: JsonValue) -> bool:
        inside = [] if value in ({}, []) else self._inside(value)
        return any(not (isinstance(one, str) and one and is_echo(one)) for one in inside)

    def _inside(self, value: JsonValue) -> list[JsonValue]:
        """Return the value at the path; empty if nothing is there."""
        for key, position in re.findall(r"([^.\[\]]+)|\[(\d+)\]", self.path.removeprefix("$")):
            if key and isinstance(value, dict) and key in value:
                value = value[key]
            elif position and isinstance(value, list) and int(position) < len(value):
                value = value[int(position)]
            else:
                return []
        return [value]


def json_values(response: str, is_answer: Callable[[JsonValue], bool] = bool) -> list[JsonValue]:
    """Return the JSON values of a response in order, of its fenced blocks only if these hold any.

    Values for which `is_answer` is false are left out, unless it is false for all.
    """
    fenced = [value for block in _FENCED.findall(response) for value in _values(block)]
    found = [value for value in fenced if is_answer(value)]
    if not found:
        values = list(_values(response))
        found = [value for value in values if is_answer(value)] or fenced or values
    return found


def parse_json(text: str) -> JsonValue:
    """Parse JSON with NaN and Infinity as null; raise ValueError if it is invalid or too deeply nested."""
    try:
        value: JsonValue = json.loads(text, parse_constant=_null)
    except RecursionError as error:
        raise ValueError("too deeply nested") from error
    return value


def as_text(value: JsonValue) -> str:
    """Return a string unchanged, and any other value as JSON."""
    # An escape such as \ud800 is half a character.
    return storable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


def _values(text: str) -> Iterator[JsonValue]:
    """Yield the value of the whole text if it is JSON, else the outermost objects and lists in it."""
    try:
        yield parse_json(text)
        return
    except ValueError:
        pass
    decoder = json.JSONDecoder(parse_constant=_null)
    place = wasted = 0
    while wasted < MAX_WASTED and (opening := _OPENING.search(text, place)):
        if opening.start() > CUT_CHARS:
            # Creating an error takes time in proportion to the text before it, because it counts the lines.
            text, place = text[opening.start() :], 0
            continue
        try:
            value, place = decoder.raw_decode(text, opening.start())
        except json.JSONDecodeError as error:
            place = opening.start() + 1
            wasted += error.pos - opening.start() + MIN_WASTED
        except (ValueError, RecursionError):
            # A number with thousands of digits, or a thousand nested brackets; the rest would fail alike.
            return
        else:
            yield value


def _null(constant: str) -> None:
    """Read NaN and Infinity, which aren't JSON, as null."""


FieldRule = Annotated[Exact | TokenF1 | Contains | NumberMatch | Anls | Matches, Field(discriminator="by")]


class JsonFields(Scoring):
    """Soft score: the share of the reference's fields that are right. Hard score: all of them are right."""

    by: Literal["json"] = "json"
    fields: Mapping[str, FieldRule] = {}
    """The fields to score, with a rule for each. If empty: all fields of the reference, numbers by value and all
    others by equality."""

    def check(self, reference: JsonValue, public: JsonObject) -> None:
        expected = _object(reference)
        if not expected:
            raise DataError(f"expected a JSON object with at least one field, got {short_repr(reference)}")
        for name, rule in self.fields.items():
            if name not in expected:
                raise DataError(f"expected an object with the field {name!r}, got {short_repr(reference)}")
            try:
                rule.check(expected[name], public)
            except DataError as error:
                raise DataError(f"{name}: {error}") from None

    def _score(self, answer: str, reference: JsonValue, public: JsonObject) -> Score:
        """Compare the answer's last JSON object with any of the fields; a missing field counts as null."""
        expected = _object(reference) or {}
        expected = {name: expected[name] for name in self.fields or expected}

        def has_field(value: JsonValue) -> bool:
            return isinstance(value, dict) and any(name in value for name in expected)

        objects = [value for value in json_values(answer, has_field) if isinstance(value, dict)]
        if not objects:
            wanted = json.dumps(expected, ensure_ascii=False)
            return Score(hard=0.0, soft=0.0, feedback=f'expected {wanted}; answered no JSON object: "{answer}"')
        found = objects[-1]
        wrong = [name for name, value in expected.items() if not self._right(name, found.get(name), value, public)]
        soft = 1.0 - len(wrong) / len(expected)
        return Score(hard=float(not wrong), soft=soft, feedback=_feedback(expected, found, wrong))

    def _right(self, name: str, answered: JsonValue, expected: JsonValue, public: JsonObject) -> bool:
        rule = self.fields.get(name)
        if rule is None and (answered == expected or not _is_number(expected)):
            return _same(answered, expected)
        if answered is None or (rule is None and not _is_one_number(answered)):
            return False
        return (rule or NumberMatch()).score(as_text(answered), expected, public).hard == 1.0


def _object(reference: JsonValue) -> JsonObject | None:
    if isinstance(reference, str):
        try:
            reference = parse_json(reference)
        except ValueError:
            return None
    return reference if isinstance(reference, dict) else None


def _is_number(value: JsonValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_one_number(value: JsonValue) -> bool:
    """Return whether a value is a number, or a string with exactly one."""
    return _is_number(value) or (isinstance(value, str) and len(numbers(value)) == 1)


def _same(one: JsonValue, other: JsonValue) -> bool:
    """Return whether two JSON values are equal, unlike in Python, where True equals 1."""
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[name], other[name]) for name in one)
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _feedback(expected: JsonObject, found: JsonObject, wrong: list[str]) -> str:
    if not wrong:
        return f"expected {as_text(expected)}; answered it"
    wanted = as_text({name: expected[name] for name in wrong})
    answered = as_text({name: found[name] for name in wrong if name in found})
    return f"expected {wanted}; answered {answered}; {len(expected) - len(wrong)} of {len(expected)} fields are right"


MAX_PARTS = 1000
"""Limit of parts that an answer is divided into; the rest is one entry."""
_BULLET = re.compile(r"^ ?(?:[-*•+]|\(?\d{1,3}[.)]) ", re.MULTILINE)
_LEAD_IN = re.compile(r"\A[^:\n]*:(?=\s)")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_DIVIDER = re.compile(r"(\s*[\n,;|、，；]\s*(?:(?:and|&) )?| (?:and|&) )", re.IGNORECASE)


class ListMatch(Scoring):
    """Right if the answer has exactly the entries of the reference; the soft score is the F1 of the entries.

    A reference is a list, a string with a list in JSON or Python, or entries separated by `|`, `;` or line breaks. An
    answer is a list in JSON or Python, lines, or entries separated by commas, semicolons or `and`.
    """

    by: Literal["list"] = "list"
    each: FieldRule = Exact(normalized=True)
    """The rule that compares two entries."""
    ordered: bool = False
    """True if the order of the entries counts."""

    def check(self, reference: JsonValue, public: JsonObject) -> None:
        for place, entry in enumerate(_wanted(reference)):
            try:
                self.each.check(entry, public)
            except DataError as error:
                raise DataError(f"[{place}]: {error}") from None

    def _score(self, answer: str, reference: JsonValue, public: JsonObject) -> Score:
        """Score the interpretation of the answer that fits best."""
        wanted = _wanted(reference)
        read = ((self._found(entries, wanted), entries) for entries in _readings(answer, wanted))
        scores = [(2 * found / (len(entries) + len(wanted)), found, len(entries)) for found, entries in read]
        soft, found, given = max(scores, default=(0.0, 0, 0))
        result = f'{found} of {len(wanted)} entries are right, of {given} in the answer: "{answer}"'
        return Score(hard=float(soft == 1.0), soft=soft, feedback=f"expected all of {as_text([*wanted])}; {result}")

    def _found(self, entries: Sequence[str], wanted: Sequence[str]) -> int:
        """Return the number of right entries; if the order counts, of the longest subsequence in order."""
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
    values = parse_list(reference)
    if isinstance(values, str):
        values = [part for part in re.split(r"[|;\n]", values) if part.strip()]
    return alternatives(values)


def _readings(answer: str, wanted: Sequence[str]) -> Iterator[list[str]]:
    """Yield the possible interpretations of an answer: a list in JSON or Python, and its parts between dividers."""
    lists = [value for value in json_values(answer, lambda value: isinstance(value, list)) if isinstance(value, list)]
    with suppress(DataError):
        value = parse_list(answer.strip())
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
    parts = _DIVIDER.split(text.strip(), maxsplit=MAX_PARTS)
    longest = max(len(_DIVIDER.split(one)) for one in wanted)
    entries, start = list[str](), 0
    while start < len(parts):
        runs = ("".join(parts[start : start + size]) for size in range(longest, 1, -2))
        entry = next((run for run in runs if any(same_words(run, one) for one in wanted)), parts[start])
        entries.append(entry)
        start += len(_DIVIDER.split(entry)) + 1
    return [entry for entry in entries if entry.strip()]
