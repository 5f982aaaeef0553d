"""LiveMathematicianBench: a question on a recent theorem, five statements, one of them right."""

import random
import re
from collections.abc import Sequence
from string import ascii_uppercase

from include.core.errors import DataError
from include.core.types import Item, JsonObject, Message, Score, Trajectory

_PROMPT = """{question}

{choices}

Reason in a few sentences, then give the letter of the right choice inside <answer></answer> tags."""
_LABEL = re.compile(r"(?:choice|option|answer)?\s*(?:is\s*)?[(\[*]*([A-Z])[)\].:*]*", re.IGNORECASE)
_LABEL_AND_TEXT = re.compile(r"[(\[]?([A-Z])[)\].:]+\s+(.+)", re.DOTALL)
_BOXED = re.compile(r"\\boxed\{\s*(?:\\text\{)?([^{}]*)\}")


class LiveMathematicianBench:
    """Items with a question and lettered choices; records as the benchmark's monthly files have them."""

    text_columns = ("month",)
    list_columns = ()

    def identity(self, record: JsonObject) -> str:
        """Month and number, such as 202602-8: the files have no id of their own.

        Raises:
            DataError: one of the two is missing.
        """
        number = record.get("no")
        if not isinstance(number, int):
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
        """What the last pair of <answer> tags holds, else what the last box holds, else the last line."""
        tagged = re.findall(r"<answer>((?:(?!<answer>).)*?)</answer>", response, re.DOTALL | re.IGNORECASE)
        lines = [line for line in response.splitlines() if line.strip()]
        found = tagged or _BOXED.findall(response) or lines
        return str(found[-1]).strip() if found else ""

    def score(self, item: Item, trajectory: Trajectory) -> Score:
        """1 for the right choice, by its letter or its text, else 0; there is no partial credit among choices."""
        choices = lettered(item.public)
        chosen = choice_of(trajectory.answer, choices)
        label = str(item.reference["label"])
        said = f"{chosen}: {choices[chosen]}" if chosen else f'no choice that is there: "{trajectory.answer[:200]}"'
        right = float(chosen == label)
        return Score(hard=right, soft=right, feedback=f"expected {label}: {choices[label]}; answered {said}")


def lettered(public: JsonObject) -> dict[str, str]:
    """The choices by letter, from A."""
    choices = public["choices"]
    texts = [str(choice) for choice in choices] if isinstance(choices, list) else []
    return dict(zip(ascii_uppercase, texts, strict=False))


def choice_of(answer: str, choices: dict[str, str]) -> str:
    """The letter of the choice that an answer names by letter or text; empty if it names none, or several."""
    boxed = _BOXED.search(answer)
    bare = (boxed[1] if boxed else answer).strip()
    by_text = [label for label, text in choices.items() if plain(text) == plain(bare)]
    if by_text:
        return by_text[0]
    whole, both = _LABEL.fullmatch(bare), _LABEL_AND_TEXT.fullmatch(bare)
    label = whole[1].upper() if whole else both[1] if both else ""
    if label not in choices or (both and plain(both[2]) != plain(choices[label])):
        return ""
    return label


def plain(text: str) -> str:
    """The form in which texts of choices are compared: lower case, single blanks, no TeX spacing or end point."""
    spaced = re.sub(r"\\[,;:! ]|~", " ", text)
    return " ".join(spaced.lower().split()).rstrip(".")


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
