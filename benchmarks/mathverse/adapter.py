"""MathVerse (Zhang et al. 2024, arXiv:2403.14624): geometry and functions in pictures, text, or both."""

import re
from string import ascii_uppercase

from skillopt_airflow.core.errors import DataError
from skillopt_airflow.core.values.types import Item, JsonObject
from skillopt_airflow.tasks.declared_task import JudgedTask, choices_of, right_letters
from skillopt_airflow.tasks.record_fields import field_error, identity_at, short_repr, text_at
from skillopt_airflow.tasks.scoring.choice_match import choice_decision, letters_named, same_maths
from skillopt_airflow.tasks.scoring.extraction import Boxed, InTags
from skillopt_airflow.tasks.scoring.text_match import Exact
from skillopt_airflow.tasks.task_group import TaskGroup

CHOICE, FREE = "multi-choice", "free-form"
_PROMPT = """{% if image %}{{ image }}
{% endif %}{{ question }}

Reason step by step. Then give the final answer alone inside <answer></answer> tags{{ form }}."""
_IN_THE_PICTURE = "The question is in the picture."
_LETTER_ALONE = ": the letter of the right choice"
_AGREEMENT = """Choices have to agree entirely: each right one and no other, by letter or by text. Other answers agree
if they have the same meaning in the question: 0.5 m is 50 cm, and a rounded value agrees as far as it is given.
Intervals have to agree in their ends and in whether these belong to them; an answer that leaves a part out does not
agree."""
_CHOICES = re.compile(r"\n\s*Choices?\s*:", re.IGNORECASE)
_CHOICE = re.compile(r"^\s*\(?(?P<label>[A-H])\s*[:.)]\s*(?P<text>.*?)\s*(?=^\s*\(?[A-H]\s*[:.)]|\Z)", re.M | re.S)
_TASK = TaskGroup(prompt=_PROMPT, reference="answer", score=Exact(), group="problem_index", pictures=("image",))


class MathVerse(JudgedTask):
    """The published records: one version of a problem each."""

    text_columns = ("problem_version", "answer")

    def identity(self, record: JsonObject) -> str:
        """Return problem and version, such as 323-text-only, because sample numbers differ between files."""
        version = "-".join(text_at(record, "problem_version").lower().split())
        return f"{identity_at(record, 'problem_index')}-{version}"

    def item(self, record: JsonObject) -> Item:
        """Return an item; the judge reads the whole question even if the target sees it only in the picture.

        Raises:
            DataError: a key is missing, or the answer names no choice.
        """
        kind, asked = text_at(record, "question_type"), _text(record, "question")
        whole = _text(record, "question_for_eval") or asked
        if kind not in (CHOICE, FREE):
            raise field_error(("question_type",), f"{CHOICE} or {FREE}", kind)
        if not asked and not record.get("image"):
            raise DataError("question: it is empty, and there is no image that holds it")
        stem, choices = split_choices(whole) if kind == CHOICE else (whole, {})
        right = letters_named(text_at(record, "answer"), choices) if kind == CHOICE else frozenset()
        if kind == CHOICE and not right:
            raise DataError(
                f"answer: expected one of the choices, {', '.join(choices)}, or its text, got "
                f"{short_repr(record['answer'])}"
            )
        form = _LETTER_ALONE if kind == CHOICE else ""
        told: JsonObject = {"image": record.get("image") or "", "question": asked or _IN_THE_PICTURE, "form": form}
        return self.question_item(record | told, stem, choices, right)

    def answer(self, response: str) -> str:
        tagged = InTags().find(response)
        return Boxed().extract(response) if tagged is None else tagged.strip()

    def decision(self, answer: str, reference: JsonObject) -> bool | None:
        """Compare choices; the rules decide other answers only if the values are equal."""
        choices = choices_of(reference)
        if choices:
            return choice_decision(answer, right_letters(reference), choices)
        box = Boxed().find(answer)
        return True if same_maths(answer if box is None else box, str(reference["reference"])) else None


def split_choices(question: str) -> tuple[str, dict[str, str]]:
    """Split a question from its choices; return all letters with empty texts if there are no readable choices.

    Choices start lines with letters in order, so that a letter and a period inside a text aren't one.
    """
    *_, mark = [None, *_CHOICES.finditer(question)]
    listed = list(_CHOICE.finditer(question, mark.end())) if mark else []
    choices = {found["label"]: found["text"] for found in listed}
    if mark is None or len(listed) < 2 or [found["label"] for found in listed] != [*ascii_uppercase[: len(listed)]]:
        return question, dict.fromkeys(ascii_uppercase, "")
    return question[: mark.start()].strip(), choices


def _text(record: JsonObject, key: str) -> str:
    value = record.get(key)
    return value.strip() if isinstance(value, str) else ""


BENCHMARK = MathVerse(_TASK, _AGREEMENT)
