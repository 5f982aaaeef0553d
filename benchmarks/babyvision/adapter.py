"""BabyVision (UnipatAI): visual puzzles on one picture that need little language."""

import re
from fractions import Fraction
from string import ascii_uppercase

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import Item, JsonObject
from skillopt_airflow.tasks.declared_task import JudgedTask, choices_of, right_letters
from skillopt_airflow.tasks.record_fields import (
    field_error,
    identity_at,
    short_repr,
    text_at,
    texts_at,
    whole_number_at,
)
from skillopt_airflow.tasks.scoring.choice_match import choice_decision, plain_maths, same_maths
from skillopt_airflow.tasks.scoring.extraction import Boxed
from skillopt_airflow.tasks.scoring.text_match import Exact
from skillopt_airflow.tasks.task_group import TaskGroup

CHOICE, BLANK = "choice", "blank"
_PROMPT = r"""{{ image }}
{{ question }}
{% if listed %}
Choices:
{{ listed }}
{% endif %}
Say what you see and how you find the answer. Then give the final answer as \boxed{Answer}{{ form }}."""
_LETTER_ALONE = ", with the letter of the right choice in the place of Answer"
_AGREEMENT = """The answer has to mean the same as the reference, entirely: the same number, the same letter, the same
place. The order of coordinates counts (row before column unless the question says otherwise); how they are written does
not: "Row 4 Column 17" is (4,17)."""
_BEGIN, _END = "<|begin_of_box|>", "<|end_of_box|>"
_NUMBERS = re.compile(r"-?\d{1,9}(?:\.\d{1,9})?(?:,-?\d{1,9}(?:\.\d{1,9})?)*")
_TASK = TaskGroup(prompt=_PROMPT, reference="gold", score=Exact(), pictures=("image",))


class BabyVision(JudgedTask):
    """The published records: a picture, and a question with choices or a blank."""

    text_columns = ("question", "ansType")

    def identity(self, record: JsonObject) -> str:
        return identity_at(record, "taskId")

    def item(self, record: JsonObject) -> Item:
        """Return an item with lettered choices or a blank.

        Raises:
            DataError: a key is missing or invalid.
        """
        kind, question = text_at(record, "ansType"), text_at(record, "question")
        if kind not in (CHOICE, BLANK):
            raise field_error(("ansType",), f"{CHOICE} or {BLANK}", kind)
        text_at(record, "image")
        choices = _choices(record) if kind == CHOICE else {}
        gold = _right_choice(record, choices) if kind == CHOICE else text_at(record, "blankAns").strip()
        told: JsonObject = {
            "listed": "\n".join(f"({letter}) {text}" for letter, text in choices.items()),
            "form": _LETTER_ALONE if kind == CHOICE else "",
            "gold": gold,
        }
        return self.question_item(record | told, question, choices, frozenset(gold) if kind == CHOICE else frozenset())

    def answer(self, response: str) -> str:
        r"""Return the content of the last \boxed{}, else of the last box tokens, else an empty string."""
        box = Boxed().find(response)
        if box is None:
            pieces = [piece.partition(_BEGIN) for piece in response.split(_END)[:-1]]
            box = next((inside for _, begun, inside in reversed(pieces) if begun), "")
        return str(box).strip()

    def decision(self, answer: str, reference: JsonObject) -> bool | None:
        """Compare choices, numbers, and coordinates; the rules decide other texts only if they are equal."""
        choices = choices_of(reference)
        if choices:
            return choice_decision(answer, right_letters(reference), choices)
        expected = str(reference["reference"])
        given, wanted = _bare(answer), _bare(expected)
        if given == wanted or same_maths(answer, expected):
            return True
        if not _NUMBERS.fullmatch(given) or not _NUMBERS.fullmatch(wanted):
            return None
        numbers, sought = ([Fraction(number) for number in text.split(",")] for text in (given, wanted))
        return numbers == sought


def _choices(record: JsonObject) -> dict[str, str]:
    texts = texts_at(record, "options")
    if len(texts) > len(ascii_uppercase):
        raise DataError(f"options: expected at most {len(ascii_uppercase)}, got {len(texts)}")
    return dict(zip(ascii_uppercase, texts, strict=False))


def _right_choice(record: JsonObject, choices: dict[str, str]) -> str:
    place, letters = whole_number_at(record, "choiceAns"), [*choices]
    if not 0 <= place < len(letters):
        raise DataError(f"choiceAns: expected a place from 0 to {len(letters) - 1}, got {short_repr(place)}")
    return letters[place]


def _bare(text: str) -> str:
    """Normalize a text, and remove parentheses around all of it."""
    plain = plain_maths(text)
    inside = plain[1:-1]
    return inside if plain.startswith("(") and plain.endswith(")") and not {*"()"} & {*inside} else plain


BENCHMARK = BabyVision(_TASK, _AGREEMENT)
