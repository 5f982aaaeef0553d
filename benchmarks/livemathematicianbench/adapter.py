"""LiveMathematicianBench: a question on a recent theorem, five statements, one of them right."""

import random
import re
from collections.abc import Sequence
from string import ascii_uppercase

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.types import Item, JsonObject, Message, Score, Trajectory

_PROMPT = """{question}

{choices}

Reason in a few sentences, then give the letter of the right choice inside <answer></answer> tags."""
_CUE = r"(?:(?:the|my|correct|right|best|final|choice|option|answer|letter|statement|is)\b[\s:]*)*"
_LABEL = re.compile(rf"{_CUE}[\s*$(\[]*(?P<label>[A-Z])[\s*$)\].:!]*(?:is (?:right|correct|true)\.?)?", re.IGNORECASE)
_LABEL_AND_MORE = re.compile(rf"(?i:{_CUE})[*(\[]*(?P<label>[A-Z])[*)\].:]+\s*(?P<more>\S.*)", re.DOTALL)
_NAMED = re.compile(r"\((?P<bare>[A-Z])\)|\b(?i:choice|option|answer(?:\s+is)?)[\s:]+[(*]*(?P<cued>[A-Z])\b")
_BOX = "\\boxed{"
_FONT = re.compile(r"\\(?:text|textbf|textrm|mathrm|mathbf)\s*\{([^{}]*)\}")
_DELIMITER = re.compile(r"\\[()\[\]]")
_BLANK = re.compile(r"\\(?:[,;:!>\s()\[\]]|q?quad\b)|[\s~$]")


class LiveMathematicianBench:
    """Items with a question and lettered choices; records as the benchmark's monthly files have them."""

    runs_code = False
    text_columns = ("month",)
    list_columns = ()

    def identity(self, record: JsonObject) -> str:
        """Month and number, such as 202602-8: the files have no id of their own.

        Raises:
            DataError: one of the two is missing.
        """
        number = record.get("no")
        if not isinstance(number, int) or isinstance(number, bool):
            raise DataError(f"no: expected a number, got {_kind(number)}")
        return f"{_text(record, '', 'month')}-{number}"

    def item(self, record: JsonObject) -> Item:
        """Question and choices are public; the right choice, which the files list apart, goes among the others.

        Raises:
            DataError: naming the key that is missing or of the wrong type, or that two choices are the same.
        """
        identity, question = self.identity(record), _inside(record, "mcq")
        text = _text(_inside(question, "correct_choice", "mcq."), "mcq.correct_choice.", "text")
        choices = [text, *_others(question.get("choices"))]
        if len(set(map(plain, choices))) < len(choices):
            raise DataError("mcq.choices: two of the choices are the same text")
        if len(choices) > len(ascii_uppercase):
            raise DataError(f"mcq.choices: expected at most {len(ascii_uppercase) - 1}, got {len(choices) - 1}")
        # By the item alone, so that every process sees the same order, and the right choice is not always A.
        random.Random(identity).shuffle(choices)  # noqa: S311
        return Item(
            id=identity,
            public={"question": _text(question, "mcq.", "question"), "choices": list(choices)},
            reference={"label": ascii_uppercase[choices.index(text)], "answer": text},
        )

    def messages(self, public: JsonObject, skill: str) -> Sequence[Message]:
        """The skill as system message, then the question and a line a choice."""
        choices = "\n".join(f"{label}. {text}" for label, text in lettered(public).items())
        prompt = _PROMPT.format(question=public["question"], choices=choices)
        return (Message(role="system", content=skill), Message(role="user", content=prompt))

    def answer(self, response: str) -> str:
        """What the last pair of <answer> tags holds, else what the last \\boxed{} holds, else the last line."""
        # An opening tag without its partner, as in "inside <answer> tags:", belongs to no pair.
        tagged = re.findall(r"<answer>((?:(?!<answer>).)*?)</answer>", response, re.DOTALL | re.IGNORECASE)
        if tagged:
            return str(tagged[-1]).strip()
        lines = [line.strip() for line in response.splitlines() if line.strip()]
        return unboxed(response) if _BOX in response else lines[-1] if lines else ""

    def score(self, item: Item, trajectory: Trajectory) -> Score:
        """1 for the right choice, by its letter or its text, else 0, as hard and as soft.

        The letters have no order and the choices no likeness that would be worth a part of a point.
        """
        choices = lettered(item.public)
        named, label = sorted(choices_named(trajectory.answer, choices)), str(item.reference["label"])
        right = float(named == [label])
        if len(named) == 1:
            said = f"{named[0]}: {choices[named[0]]}"
        elif named:
            said = f"with more than one choice: {', '.join(named)}"
        else:
            said = f'no choice that could be recognised: "{trajectory.answer[:200]}"'
        return Score(hard=right, soft=right, feedback=f"expected {label}: {choices[label]}; answered {said}")


def lettered(public: JsonObject) -> dict[str, str]:
    """The choices by letter, from A."""
    choices = public["choices"]
    texts = [str(choice) for choice in choices] if isinstance(choices, list) else []
    return dict(zip(ascii_uppercase, texts, strict=False))


def choices_named(answer: str, choices: dict[str, str]) -> frozenset[str]:
    """The letters of the choices that an answer names: by a letter, by the whole text of one, or by both."""
    unwrapped = unboxed(answer)
    bare = _FONT.sub(r"\1", _DELIMITER.sub("", unwrapped)).strip()
    by_text = _with_text(unwrapped, choices) or _with_text(bare, choices)
    if by_text:
        return by_text
    alone = _LABEL.fullmatch(bare)
    if alone:
        return frozenset([alone["label"].upper()]) & choices.keys()
    named = {match["bare"] or match["cued"] for match in _NAMED.finditer(bare)}
    first = _LABEL_AND_MORE.fullmatch(bare)
    if first:
        named |= {first["label"]} | _with_text(first["more"], choices)
    return frozenset(named & choices.keys()) | _listed(bare, choices)


def unboxed(text: str) -> str:
    """What the last \\boxed{} of a text holds; the text itself if it has none."""
    _, box, rest = text.rpartition(_BOX)
    depth = 1
    for place, character in enumerate(rest if box else ""):
        depth += {"{": 1, "}": -1}.get(character, 0)
        if depth == 0:
            return rest[:place].strip()
    return text


def plain(text: str) -> str:
    """The form in which texts of choices are compared: no blanks, no math delimiters, no end point.

    LaTeX gives a blank no meaning inside a formula; outside of one no two choices differ by blanks alone.
    """
    return _BLANK.sub("", text).rstrip(".")


def _with_text(text: str, choices: dict[str, str]) -> frozenset[str]:
    """The choices with that text; case counts only where it tells choices apart, as n and N."""
    exact = frozenset(label for label, choice in choices.items() if plain(choice) == plain(text))
    if exact:
        return exact
    return frozenset(label for label, choice in choices.items() if plain(choice).lower() == plain(text).lower())


def _listed(text: str, choices: dict[str, str]) -> frozenset[str]:
    """The letters of a bare list such as `B, D`, `B or D`, `BD`; none if the text is anything else."""
    letters = re.sub(r"\b(?:and|or)\b|[\s,;/&+()]", "", text)
    return frozenset(letters) if letters and set(letters) <= choices.keys() else frozenset()


def _others(choices: object) -> list[str]:
    if not isinstance(choices, list) or not choices:
        raise DataError(f"mcq.choices: expected a list of objects with label and text, got {_kind(choices)}")
    texts = []
    for number, choice in enumerate(choices):
        if not isinstance(choice, dict):
            raise DataError(f"mcq.choices[{number}]: expected an object with label and text, got {_kind(choice)}")
        texts.append(_text(choice, f"mcq.choices[{number}].", "text"))
    return texts


def _inside(record: JsonObject, key: str, path: str = "") -> JsonObject:
    value = record.get(key)
    if not isinstance(value, dict):
        raise DataError(f"{path}{key}: expected an object, got {_kind(value)}")
    return value


def _text(record: JsonObject, path: str, key: str) -> str:
    value = record.get(key)
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{path}{key}: expected a non-empty text, got {_kind(value)}")
    return value


def _kind(value: object) -> str:
    return "nothing" if value is None else repr(value)[:80]


BENCHMARK = LiveMathematicianBench()
