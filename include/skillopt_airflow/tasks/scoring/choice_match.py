"""Multiple choice: finding the choices that an answer names, and scoring them."""

import json
import re
import unicodedata
from collections.abc import Callable, Collection, Mapping
from fractions import Fraction
from itertools import accumulate
from string import ascii_uppercase
from typing import Literal

from pydantic import Field, JsonValue

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import JsonObject, Score
from skillopt_airflow.tasks.record_fields import short_repr
from skillopt_airflow.tasks.scoring.choice_statement import FONT, Statement, head_and_tail, statement
from skillopt_airflow.tasks.scoring.extraction import Boxed, Extraction, InTags, last_line
from skillopt_airflow.tasks.scoring.scoring_rule import Scoring, parse_list

_LETTER_ALONE = re.compile(r"[\s*_`\"'$(\[]*(?P<letter>[A-Za-z])[\s*_`\"'$)\].:!]*")


class ChoiceLetter(Extraction):
    r"""The letter of the choice that a response states, or of the only one that it names and doesn't reject.

    Answer tags and \boxed{} come first, then a last line with only a letter, then the last statement.
    """

    from_: Literal["choice"] = Field(default="choice", alias="from")

    def find(self, response: str) -> str | None:
        """Return the letter in upper case; the content of tags or box if it states no letter; empty if ambiguous."""
        marked = InTags().find(response)
        if marked is None:
            marked = Boxed().find(response)
        alone = _LETTER_ALONE.fullmatch(last_line(response) if marked is None else marked)
        if alone:
            return alone["letter"].upper()
        found = statement(response if marked is None else marked)
        if marked is not None:
            return min(found.letters) if found.certain and len(found.letters) == 1 else marked
        if len(found.letters) == 1:
            return min(found.letters)
        return "" if found.rejected or found.letters else None


def stated_line(response: str) -> str | None:
    """Return the line of the last statement of letters; it may also contain a choice's text."""
    place, lines = statement(response).line, head_and_tail(response).split("\n")
    return lines[place].strip() if place is not None and place < len(lines) else None


MAX_ANSWER_SHOWN = 200
"""Characters that the feedback shows of an answer without a recognized choice."""
_LETTER = re.compile(r"[\s*(\[]*(?P<label>[A-Za-z])[\s*)\].:]*")
_AROUND = r"[^\w\-−¬√∂∇~=<>+|/^]*"
_ALONE = re.compile(rf"{_AROUND}(?P<label>[A-Za-z]){_AROUND}")
"""A letter in quotes, brackets or punctuation of any script, outside of formulas."""
_ANSWER_IS = re.compile(r"\A(?:the )?(?:(?:final|correct|right|best) )?answer[*_]*(?: is)?:?[*_]* ", re.IGNORECASE)
_DELIMITER = re.compile(r"\\[()\[\]]")
_AROUND_LABEL = " .():"
_BLANK = re.compile(r"\\(?:[,;:!>\s()\[\]]|q?quad\b)|[\s~$]")


class ChoiceMatch(Scoring):
    """Right if the answer names only the right choice, by its letter, its text or both. No partial credit."""

    by: Literal["choice"] = "choice"
    choices: str = ""
    """Key of the choices, in a format that `choices_by_letter` reads. If empty, only letters are recognized."""

    @property
    def columns(self) -> tuple[str, ...]:
        return (self.choices,) if self.choices else ()

    def check(self, reference: JsonValue, public: JsonObject) -> None:
        choices = self._choices(public)
        if self.choices:
            check_distinct(choices.values(), self.choices)
        _right(self._by_letter(reference, public), choices)

    def _score(self, answer: str, reference: JsonValue, public: JsonObject) -> Score:
        choices = self._choices(public)
        answer = str(self._by_letter(answer, public))
        named, right = sorted(choices_named(answer, choices)), _right(self._by_letter(reference, public), choices)
        if len(named) == 1:
            answered = _with_its_text(named[0], choices)
        elif named:
            answered = f"with more than one choice: {', '.join(named)}"
        else:
            answered = f'no choice that could be recognized: "{answer[:MAX_ANSWER_SHOWN]}"'
        score = float(named == [right])
        return Score(hard=score, soft=score, feedback=f"expected {_with_its_text(right, choices)}; answered {answered}")

    def _choices(self, public: JsonObject) -> dict[str, str]:
        if not self.choices:
            return dict.fromkeys(ascii_uppercase, "")
        return choices_by_letter(public.get(self.choices), self.choices)

    def _by_letter(self, named: JsonValue, public: JsonObject) -> JsonValue:
        return _letters(_by_label(public.get(self.choices))).get(str(named).strip(_AROUND_LABEL), named)


def choices_by_letter(choices: JsonValue, key: str = "choices") -> dict[str, str]:
    """Return choices by letter, from A; raise DataError, which names the key, for any other format.

    * A list of strings or numbers, or an object with a string per label.
    * An object with the lists `label` and `text` (as in ARC).
    * A list of objects with `label` and `text` (as in CommonsenseQA).
    * A string with any of these in JSON or Python.

    Nulls are left out, and numeric labels become letters in their order.
    """
    try:
        found = _by_label(choices)
    except DataError as error:
        raise DataError(f"{key}: {error}") from error
    letters = _letters(found)
    texts = {
        letters.get(label, label): text if isinstance(text, str) else json.dumps(text)
        for label, text in found.items()
        if isinstance(text, str | int | float)
    }
    if not texts or len(texts) < len(found) or not texts.keys() <= set(ascii_uppercase):
        raise DataError(f"{key}: expected a list of up to 26 strings, or strings by letter, got {short_repr(choices)}")
    return texts


def _by_label(choices: JsonValue) -> dict[str, JsonValue]:
    """Return choices by label, without nulls; empty if their format isn't known."""
    choices = parse_list(choices, "[{")
    pairs: list[tuple[JsonValue, JsonValue]] = []
    if isinstance(choices, dict):
        pairs = [*choices.items()]
        if isinstance(labels := choices.get("label"), list) and isinstance(texts := choices.get("text"), list):
            pairs = [*zip(labels, texts, strict=True)] if len(labels) == len(texts) else []
    elif isinstance(choices, list):
        letters = [*ascii_uppercase, *map(str, range(len(choices)))]
        pairs = [
            (choice.get("label"), choice.get("text")) if isinstance(choice, dict) else (letter, choice)
            for letter, choice in zip(letters, choices, strict=False)
        ]
    pairs = [(label, text) for label, text in pairs if text is not None]
    found = {str(label).strip(_AROUND_LABEL).upper(): text for label, text in pairs}
    return found if len(found) == len(pairs) else {}


def _letters(labels: Collection[str]) -> dict[str, str]:
    return dict(zip(labels, ascii_uppercase, strict=False)) if all(map(str.isdecimal, labels)) else {}


def check_distinct(texts: Collection[str], key: str) -> None:
    """Raise DataError, which names the key, if a choice is blank or two are equal."""
    if not all(text.strip() for text in texts):
        raise DataError(f"{key}: one of the choices is blank")
    if len(set(map(plain, texts))) < len(texts):
        raise DataError(f"{key}: two of the choices have the same text")


def choices_named(answer: str, choices: dict[str, str]) -> frozenset[str]:
    return found_choices(answer, choices).letters


def found_choices(answer: str, choices: dict[str, str]) -> Statement:
    """Return the choices that an answer names, by letter, by text, or by both if they agree."""
    box = Boxed().find(answer)
    unwrapped = answer if box is None else box.strip()
    bare, bare_choices = _bare(unwrapped), {label: _bare(text) for label, text in choices.items()}
    whole = _letter(_LETTER, unwrapped, choices) or _with_text(unwrapped, choices) or _with_text(bare, bare_choices)
    whole = whole or _letter(_ALONE, unwrapped, choices) or _listed(bare, choices)
    behind = _bare(_ANSWER_IS.sub("", bare).rstrip(". "))
    whole = whole or (_with_text(behind, bare_choices) if len(behind) > 1 else whole)
    if whole:
        return Statement(whole, certain=True, rejected=frozenset())
    known = frozenset(choices)
    found = statement(unwrapped, known)
    for label in filter(choices.get, choices):
        first = re.search(rf"(?<!\w){label}\b[*)\].:]*[\s,;–—-]*", bare)
        more = bare[first.end() :] if first else ""
        texts = _with_text(more, bare_choices) or _with_text(_unbracketed(more), bare_choices)
        if first and label in texts and label not in statement(bare[: first.end()], known).rejected:
            return found._replace(letters=frozenset(label), certain=True)
        if texts and {label} == found.letters:
            return found._replace(letters=frozenset(), certain=False)
    return found


def plain(text: str) -> str:
    """Return the form in which choices are compared: without whitespace, math delimiters and a final period."""
    return _BLANK.sub("", text).rstrip(".")


def _right(reference: JsonValue, choices: dict[str, str]) -> str:
    """Return the letter of the right choice, which the reference gives as letter, text, or position from 0."""
    named: frozenset[str] = frozenset()
    if isinstance(reference, str):
        named = _letter(_LETTER, reference, choices) or _with_text(reference, choices)
    elif isinstance(reference, int) and not isinstance(reference, bool):
        with_text = _with_text(str(reference), choices)
        at_position = frozenset(letter for place, letter in enumerate(choices) if place == reference)
        named = with_text | at_position
        if len(named) > 1:
            raise DataError(
                f"{reference} is the text of choice {min(with_text)} and the position from 0 of choice "
                f"{min(at_position)}. Write the letter of the right choice, or its text as a string"
            )
    if len(named) != 1:
        letters = f"{min(choices)} to {max(choices)}"
        known = f"its letter ({letters}), its text, or its position from 0 as a number"
        raise DataError(f"expected one choice, by {known}; got {short_repr(reference)}")
    return next(iter(named))


def _bare(text: str) -> str:
    return " ".join(FONT.sub(r"\1", _DELIMITER.sub("", text)).strip("*_`\"' \t\n").split())


def _unbracketed(text: str) -> str:
    """Remove brackets that enclose the whole text; `(x+1)(x-1)` has none."""
    text = text.rstrip(". ")
    depths = [*accumulate((character in "([") - (character in ")]") for character in text)]
    return text[1:-1] if (text[:1], text[-1:]) in (("(", ")"), ("[", "]")) and 0 not in depths[:-1] else text


def _with_its_text(letter: str, choices: dict[str, str]) -> str:
    return f"{letter}: {choices[letter]}" if choices[letter] else letter


def _letter(pattern: re.Pattern[str], text: str, choices: dict[str, str]) -> frozenset[str]:
    match = pattern.fullmatch(text)
    return frozenset([match["label"].upper()]) & choices.keys() if match else frozenset()


def _with_text(text: str, choices: dict[str, str]) -> frozenset[str]:
    wanted = plain(text)
    if not wanted:
        return frozenset()
    exact = frozenset(label for label, choice in choices.items() if plain(choice) == wanted)
    return exact or frozenset(label for label, choice in choices.items() if plain(choice).lower() == wanted.lower())


def _listed(text: str, choices: dict[str, str]) -> frozenset[str]:
    letters = re.sub(r"\b(?:and|or)\b|[\s,;/&+()，；、]", "", text)
    return frozenset(letters) if letters and set(letters) <= choices.keys() else frozenset()


_FONT = r"\W*(?:(?:text|textbf|textrm|mathrm|mathbf)\W+)?"
_LETTERS = re.compile(rf"{_FONT}(?:[A-Za-z]|[A-H](?:(?:\W|\band\b|\bor\b)*[A-H])+)\W*")
"""One or more letters, whether or not choices have them."""


def choice_decision(answer: str, right: frozenset[str], choices: Mapping[str, str]) -> bool | None:
    """Return whether an answer names exactly the right choices; None if that is uncertain.

    It is certain if the answer states letters, or is the text or the value of a choice. `choices` has their texts by
    letter, and is empty if only the letter is known.
    """
    box = Boxed().find(answer)
    inside = answer if box is None else box
    found, letters = found_choices(inside, dict(choices)), _LETTERS.fullmatch(inside) is not None
    named = found.letters or _with_the_value(inside, choices)
    if not (letters or found.certain or _with_the_text(inside, choices)):
        return None
    if named == right:
        return True
    return False if letters or 0 < len(named) <= len(right) else None


def letters_named(answer: str, choices: Mapping[str, str]) -> frozenset[str]:
    """Return the letters of the choices that an answer names, also by the value of exactly one choice."""
    return found_choices(answer, dict(choices)).letters or _with_the_value(answer, choices)


def _with_the_value(answer: str, choices: Mapping[str, str]) -> frozenset[str]:
    same = frozenset(letter for letter, text in choices.items() if same_maths(answer, text))
    return same if len(same) == 1 else frozenset()


def _with_the_text(answer: str, choices: Mapping[str, str]) -> bool:
    wanted = plain(answer).lower()
    return any(text and (plain(text).lower() == wanted or same_maths(answer, text)) for text in choices.values())


MAX_CHARS = 2000
"""Longer answers are compared literally, except for whitespace and case."""
MAX_DEPTH = 12
"""Limit of nested braces that are resolved."""
MAX_DIGITS = 50
"""Longer numbers are compared as strings."""
_SUPERSCRIPTS = str.maketrans({"²": "^2", "³": "^3", "−": "-", "–": "-"})
_INSIDE = r"\{([^{}]*)\}"
_SPELLINGS = (
    (re.compile(r"\\(?:left|right|displaystyle)(?![A-Za-z])|\\[,;:!>()\[\]]|\\q?quad(?![A-Za-z])|[~$]"), " "),
    # 35° decoded with a Chinese encoding, as in two of MathVerse's answers.
    (re.compile(r"\^?\s*(?:\{\s*)?\\(?:circ|degree)(?![a-z])\s*\}?|掳|º|(?<=\d)\s*degrees?\b"), "°"),
    (re.compile(r"\\leq?(?![A-Za-z])|≤"), "<="),
    (re.compile(r"\\geq?(?![A-Za-z])|≥"), ">="),
    (re.compile(r"\\infty(?![A-Za-z])|∞"), " inf "),
    (re.compile(r"\\cup(?![A-Za-z])|∪"), " U "),
    (re.compile(r"\\(?:times|cdot)(?![A-Za-z])|[×⋅·]"), "*"),
    (re.compile(r"\\div(?![A-Za-z])|÷"), "/"),
    (re.compile(r"π"), " pi "),
    (re.compile(r"√\s*(\d+|[A-Za-z]|\([^()]*\))"), r"\\sqrt{\1}"),
    (re.compile(r"\\(sqrt|[dtc]?frac)\s+(?=\{)"), r"\\\1"),
    (re.compile(r"\\[dtc]?frac\s*(\d)\s*(\d)"), r"\\frac{\1}{\2}"),
)
_BRACED: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], str]], ...] = (
    (re.compile(rf"\\(?:text|mathrm|mathbf|textbf|textrm|operatorname)\s*{_INSIDE}"), lambda found: f" {found[1]} "),
    (re.compile(rf"\\sqrt{_INSIDE}"), lambda found: f"sqrt{_grouped(found[1], least=1)}"),
    (re.compile(rf"\\[dtc]?frac{_INSIDE}\s*{_INSIDE}"), lambda found: f" {_product(found[1])}/{_grouped(found[2])}"),
    (re.compile(rf"([\^_])\s*{_INSIDE}"), lambda found: f"{found[1]}{_grouped(found[2], least=2)}"),
)
_APART = re.compile(r"(?<=\d)\s+(?=\d|\.\d)")
"""Whitespace that matters: 1 1/2 isn't 11/2, but the `14 .` of `$14$.` is 14."""
_UNIT = (
    r"(?:°[a-z]?|%|(?:(?:cubic|square)?units?|[cmk]?m|in|inch|inches|ft|feet|yd|mi|[mk]?g|lb|[m]?l|litres?|liters?|s|min|h)"
    r"(?:\^?[23])?)"
)
_DIGITS = r"(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d*)?"
_QUANTITY = re.compile(rf"(?P<number>[-+]?{_DIGITS})(?:/(?P<below>\d+(?:\.\d+)?))?(?P<rest>(?![\d,./]).*)", re.DOTALL)
_VALUE = rf"[-+]?{_DIGITS}(?:pi|sqrt\(\d+\)|/\d+)*{_UNIT}?"
_NAMED = re.compile(rf"(?P<name>[a-z][a-z.]*)=(?P<value>(?=.){_VALUE})")


def same_maths(answer: str, expected: str) -> bool:
    r"""Return whether two strings certainly have the same value, like `\frac{4}{5}` and 0.8.

    False means unknown. A name before a value, as in `Area = 12 cm^2`, is optional; the unit isn't.
    """
    (whole, name, value), (wanted, asked, sought) = _read(answer), _read(expected)
    if not whole or not wanted:
        return False
    comparable = not name or not asked or name == asked
    return _same(whole, wanted) or (comparable and _same(value, sought))


def plain_maths(text: str) -> str:
    """Return the form in which formulas are compared: lower case, without whitespace and LaTeX commands."""
    if len(text) > MAX_CHARS:
        return "".join(text.lower().split())
    text = unicodedata.normalize("NFKC", text.translate(_SUPERSCRIPTS))
    for spelling, replacement in _SPELLINGS:
        text = spelling.sub(replacement, text)
    for _ in range(MAX_DEPTH):
        before = text
        for pattern, made in _BRACED:
            text = pattern.sub(made, text)
        if text == before:
            break
    return "".join(_APART.sub("_", text.replace("\\", "").lower()).split()).rstrip(".,;")


def _read(text: str) -> tuple[str, str, str]:
    """Return the whole text, the name before its value or an empty string, and the value."""
    plain = plain_maths(text)
    named = _NAMED.fullmatch(plain)
    return (plain, named["name"], named["value"]) if named else (plain, "", plain)


def _same(one: str, other: str) -> bool:
    (number, rest), (wanted, behind) = _quantity(one), _quantity(other)
    return one == other or (number is not None and number == wanted and rest == behind)


def _quantity(text: str) -> tuple[Fraction | None, str]:
    """Return the number at the start of a text, and the rest, such as its unit."""
    found = _QUANTITY.fullmatch(text)
    number = found["number"].replace(",", "") if found else ""
    if found is None or not any(map(str.isdigit, number)) or len(number) > MAX_DIGITS:
        return None, text
    below = Fraction(found["below"] or "1") if len(found["below"] or "") <= MAX_DIGITS else Fraction(0)
    return (Fraction(number) / below, found["rest"]) if below else (None, text)


def _product(text: str) -> str:
    text = text.strip()
    return f"({text})" if re.search(r"(?<=.)[-+]", text) else text


def _grouped(text: str, least: int = MAX_CHARS) -> str:
    """Return a text in parentheses; a letter, or a number shorter than `least` characters, gets none."""
    text = text.strip()
    if text.startswith("(") and text.endswith(")") and ")" not in text[:-1]:
        return text
    return text if len(text) < least and re.fullmatch(r"\d+|\w", text) else f"({text})"
